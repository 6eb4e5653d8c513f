//! Tests of `crates/cli/src/main.rs`, whose module they are: what the parser takes and what its help says.

#[path = "../documents/commands.rs"]
mod commands;

use commands::Place;

use super::*;

/// The parser with all commands, as users have it.
fn parser() -> clap::Command {
    let mut parser = command();
    parser.build();
    parser
}

#[test]
fn every_command_of_the_documents_is_taken() {
    let shown = commands::all();
    assert!(shown.iter().filter(|shown| shown.place == Place::Table).count() > 20, "{shown:?}");
    for shown in shown {
        let args = std::iter::once("symmetra").chain(shown.args.split(' '));
        let Err(error) = parsed(args) else { continue };
        let is_incomplete = match error.kind() {
            ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
            // An option whose value is left out.
            ErrorKind::InvalidValue => {
                error.get(ContextKind::InvalidValue).is_some_and(|value| value.to_string().is_empty())
            }
            _ => false,
        };
        assert!(shown.place == Place::Sentence && is_incomplete, "{shown}: {error}");
    }
}

/// The commands inside a command, and the command.
fn within(command: &clap::Command) -> Vec<clap::Command> {
    let inner = command.get_subcommands().flat_map(within);
    std::iter::once(command.clone()).chain(inner).collect()
}

#[test]
fn no_paragraph_of_the_help_is_long() {
    let mut longest = 0;
    for command in within(&parser()) {
        let arguments = command.get_arguments().flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
        let own =
            [command.get_about(), command.get_long_about(), command.get_after_help(), command.get_after_long_help()];
        for text in own.into_iter().chain(arguments).flatten() {
            let text = text.to_string();
            // Examples are lines of their own.
            for paragraph in text.split("\n\n").filter(|text| !text.starts_with("Examples:")) {
                let letters = paragraph.chars().count();
                longest = longest.max(letters);
                assert!(letters <= 400, "{}: {letters} characters: {paragraph}", command.get_name());
            }
        }
    }
    assert!(longest > 200, "{longest}");
}

/// Words that nobody breaks, such as a list of values, may be longer than a line.
#[test]
fn help_fits_the_terminal() {
    for width in [50, 80] {
        for mut command in within(&parser()) {
            let name = command.get_name().to_owned();
            let help = command.clone().term_width(width).render_long_help().to_string();
            let is_free = |line: &str| !line.starts_with("Usage:") && line.trim().contains(' ');
            let long = help.lines().find(|line| is_free(line) && line.chars().count() > width);
            assert_eq!(long, None, "{name} in {width} columns");
            drop(command.render_help());
        }
    }
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

/// Every command that times has the same two options for how often.
#[test]
fn repetitions_have_one_name() {
    for command in within(&parser()) {
        let has = |name: &str| command.get_arguments().any(|argument| argument.get_long() == Some(name));
        assert_eq!(has("iterations"), has("warmup"), "{}", command.get_name());
        assert!(!has("launches") && !has("rounds"), "{}", command.get_name());
    }
}
