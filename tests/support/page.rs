//! Pages of the documentation whose blocks are a program: reads the blocks, and compares the printed output of
//! commands.

use std::net::{Ipv4Addr, TcpListener};

/// The blocks of a page in order: language and text.
pub(crate) fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

/// How many blocks of a language a page has, and the blocks one after the other.
pub(crate) fn program(page: &str, language: &str) -> (usize, String) {
    let parts = blocks(page);
    let texts: Vec<&str> = parts.iter().filter(|(name, _)| *name == language).map(|(_, text)| *text).collect();
    (texts.len(), texts.join("\n"))
}

/// A port that was free when chosen.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Lines of ranks may come in any order.
pub(crate) fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Compares the output that a page shows with what `printed` gives for each command, or with `update` writes the output
/// anew into the page. Returns the number of commands.
pub(crate) fn compare(page: &mut String, program: &str, update: bool, printed: impl Fn(&str) -> String) -> usize {
    let shown = page.clone();
    let parts = blocks(&shown);
    let mut commands = 0;
    for (at, (language, command)) in parts.iter().enumerate() {
        match *language {
            name if name == program => {}
            "text" => assert_eq!(parts[at - 1].0, "sh", "output of nothing"),
            "sh" => {
                let (language, output) = parts[at + 1];
                assert_eq!(language, "text", "no output after: {command}");
                let printed = sorted(&printed(command));
                if update {
                    let block = |output: &str| format!("```sh\n{command}```\n\n```text\n{output}```\n");
                    *page = page.replace(&block(output), &block(&printed));
                } else {
                    assert_eq!(sorted(output), printed, "{command}");
                }
                commands += 1;
            }
            other => panic!("a block of {other} that no test runs"),
        }
    }
    commands
}
