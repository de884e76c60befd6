#[cfg(unix)]
mod cli;
mod demo;
mod layers;
mod pty;
mod session;
mod template_child;
mod text_golden;
