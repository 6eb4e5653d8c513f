//! Tests of `crates/cli/src/main.rs`, whose module they are: the arguments that the parser accepts, and its help.

#[path = "../../harness/commands.rs"]
mod commands;
#[path = "../../harness/parser.rs"]
mod parser;

use commands::Place;
use harness::program::hint;

use super::*;

/// The parser with all commands, as users have it.
fn built() -> clap::Command {
    let mut parser = command();
    parser.build();
    parser
}

#[test]
fn every_command_of_the_documents_is_taken() {
    let shown = parser::documents_are_taken("symmetra", |args| parsed(args).map(drop));
    assert!(shown.iter().filter(|shown| shown.place == Place::Table).count() > 20, "{shown:?}");
}

#[test]
fn options_of_nccl_tests_are_explained() {
    for (args, words) in [
        ("all-reduce -g 4", "--ranks"),
        ("all-reduce -w 5", "--warmup"),
        ("all-gather -n 100", "--iterations"),
        ("all-reduce -n 100", "--iterations"),
        ("all-reduce -d float", "--dtype"),
    ] {
        let error = parsed(std::iter::once("symmetra").chain(args.split(' '))).map(drop).unwrap_err();
        assert!(hint(&error).is_some_and(|hint| hint.contains(words)), "{args}: {error}");
    }
    let error = parsed(["symmetra", "all-reduce", "--elephant"]).map(drop).unwrap_err();
    assert_eq!(hint(&error), None);
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
