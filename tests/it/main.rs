#[cfg(unix)]
mod cli;
mod demo;
mod hub;
mod layers;
mod pty;
mod session;
mod support;
mod template_child;
mod text_golden;
