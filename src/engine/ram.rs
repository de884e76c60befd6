//! How much of the machine's memory is free for a model.

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// Bytes that can be had without taking them from other programs; `None` if the system doesn't say.
///
/// Pages that only repeat a file count as free, because the system gives them back when they are wanted. That holds
/// inside a container too, where sysinfo's own `free_memory` takes them for used; so its limit is taken, less what
/// the group holds apart from files.
pub fn available() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let machine = Some(system.available_memory()).filter(|bytes| *bytes > 0);
    let limits = sysinfo::get_current_pid().ok().and_then(|pid| {
        system.refresh_processes_specifics(
            ProcessesToUpdate::Some(&[pid]),
            false,
            ProcessRefreshKind::nothing(),
        );
        system.process(pid)?.cgroup_limits()
    });
    let group = limits.or_else(|| system.cgroup_limits());
    let group = group.map(|limits| limits.total_memory.saturating_sub(limits.rss));
    machine.into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_not_more_than_the_machine_has() {
        let mut system = System::new().unwrap();
        system.refresh_memory();
        let available = available().expect("the systems that tests run on say it");
        assert!(available > 1 << 20 && available <= system.total_memory(), "{available}");
    }
}
