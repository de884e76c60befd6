#[cfg(unix)]
mod pty;
mod template_child;
mod text_golden;
