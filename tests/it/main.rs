#[cfg(unix)]
mod pty;
