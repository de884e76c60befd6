#[cfg(unix)]
mod cli;
#[cfg(unix)]
mod config;
mod demo;
#[cfg(unix)]
mod history;
mod layers;
mod pty;
mod session;
mod template_child;
mod text_golden;
