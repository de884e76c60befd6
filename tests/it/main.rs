#[cfg(unix)]
mod cli;
mod demo;
mod hub;
#[cfg(unix)]
mod hub_cli;
mod layers;
mod pty;
mod session;
mod support;
mod template_child;
mod text_golden;
