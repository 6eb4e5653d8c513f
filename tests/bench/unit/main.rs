//! Tests of `crates/bench/src/main.rs`, whose module they are: the arguments that the parser accepts, and its help.

#[path = "../../harness/commands.rs"]
mod commands;
#[path = "../../harness/parser.rs"]
mod parser;

use clap::CommandFactory;

use super::*;

/// The parser with all commands, as users have it.
fn built() -> clap::Command {
    let mut parser = Command::command();
    parser.build();
    parser
}

#[test]
fn every_command_of_the_documents_is_taken() {
    let shown = parser::documents_are_taken("symmetra-bench", |args| Command::try_parse_from(args).map(drop));
    assert!(shown.len() > 10, "{shown:?}");
}

#[test]
fn no_paragraph_of_the_help_is_long() {
    parser::paragraphs_are_short(&built());
}

#[test]
fn help_fits_the_terminal() {
    parser::help_fits(&built());
}

#[test]
fn repetitions_have_one_name() {
    parser::repetitions_have_one_name(&built());
}
