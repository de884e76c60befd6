use std::process::ExitCode;

use loquat::engine::prompt::child;

fn main() -> ExitCode {
    // First of all, before anything is set up: a child that renders a template needs nothing else.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == child::ARGUMENT) {
        return child::main();
    }
    ExitCode::SUCCESS
}
