#[cfg(unix)]
mod batch;
#[cfg(unix)]
mod cli;
#[cfg(unix)]
mod config;
mod demo;
#[cfg(unix)]
mod history;
mod hub;
#[cfg(unix)]
mod hub_cli;
#[cfg(unix)]
mod installation;
mod layers;
mod manual;
#[cfg(unix)]
mod plain;
mod pty;
mod remote;
mod schemas;
mod serve;
mod session;
mod support;
mod template_child;
mod text_golden;
mod thinking;
