//! The signals that ask a program to end, by their numbers on Unix.

use tokio::sync::mpsc;

/// Of Ctrl+C.
pub const SIGINT: i32 = 2;

/// Ctrl+C, and on Unix the signals that ask a program to end.
pub fn listen() -> mpsc::Receiver<i32> {
    let (sender, receiver) = mpsc::channel(4);
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            // Without a handler the signal ends the program at once, which is what it would do anyway.
            let Ok(mut signals) = signal(kind) else { continue };
            let sender = sender.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() && sender.send(kind.as_raw_value()).await.is_ok() {}
            });
        }
    }
    #[cfg(not(unix))]
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send(SIGINT).await.is_ok() {}
    });
    receiver
}
