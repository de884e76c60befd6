#[cfg(unix)]
mod cli;
mod layers;
mod pty;
mod template_child;
mod text_golden;
