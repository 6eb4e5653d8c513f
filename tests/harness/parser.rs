//! Checks of every program's parser: the arguments that it accepts, and its help.

use clap::Command;
use clap::error::{ContextKind, ErrorKind};

use super::commands::{self, Place, Shown};

/// The commands that the documents have of a program are taken. Returns the commands.
pub(crate) fn documents_are_taken(program: &str, parse: impl Fn(Vec<&str>) -> Result<(), clap::Error>) -> Vec<Shown> {
    let shown = commands::all(program);
    for shown in &shown {
        let Err(error) = parse(std::iter::once(program).chain(shown.args.split(' ')).collect()) else { continue };
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
    shown
}

/// The commands inside a command, and the command.
fn within(command: &Command) -> Vec<Command> {
    let inner = command.get_subcommands().flat_map(within);
    std::iter::once(command.clone()).chain(inner).collect()
}

/// No paragraph of the help is long.
pub(crate) fn paragraphs_are_short(parser: &Command) {
    let mut longest = 0;
    for command in within(parser) {
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

/// The help fits the terminal. Words without a place to break, such as a list of values, may be longer than a line.
pub(crate) fn help_fits(parser: &Command) {
    for width in [50, 80] {
        for mut command in within(parser) {
            let name = command.get_name().to_owned();
            let help = command.clone().term_width(width).render_long_help().to_string();
            let is_free = |line: &str| !line.starts_with("Usage:") && line.trim().contains(' ');
            let long = help.lines().find(|line| is_free(line) && line.chars().count() > width);
            assert_eq!(long, None, "{name} in {width} columns");
            drop(command.render_help());
        }
    }
}

/// Every command that times has the same two options for the number of repetitions.
pub(crate) fn repetitions_have_one_name(parser: &Command) {
    for command in within(parser) {
        let has = |name: &str| command.get_arguments().any(|argument| argument.get_long() == Some(name));
        assert_eq!(has("iterations"), has("warmup"), "{}", command.get_name());
        assert!(!has("launches") && !has("rounds"), "{}", command.get_name());
    }
}
