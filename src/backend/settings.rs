//! Finds the first field in which settings of two ranks differ.

use std::fmt::Debug;

/// Settings by name. The name of a struct is empty if its fields have names.
pub(crate) type NamedSettings<'a> = [(&'a str, &'a dyn Debug)];

/// Each setting by name, printed with one field per line.
pub(super) fn texts(settings: &NamedSettings<'_>) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), format!("{value:#?}"))).collect()
}

/// The name of the first field that differs, and its two values.
pub(super) fn difference(ours: &[(String, String)], theirs: &[(String, String)]) -> Option<(String, [String; 2])> {
    let ((name, ours), (_, theirs)) = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs)?;
    let texts = [ours, theirs].map(|text| text.lines().collect::<Vec<_>>());
    let [ours, theirs] = &texts;
    let first = (0..).find(|line| ours.get(*line) != theirs.get(*line))?;
    // Where a list ends on one rank, the whole list differs.
    let end = [ours, theirs].into_iter().find_map(|lines| lines.get(first).filter(|line| is_end(line)));
    let line = end.map_or(first, |end| opening(ours, first, depth(end)));
    let path = [name.clone(), path(ours, line)].concat();
    Some((path.trim_start_matches('.').to_owned(), texts.map(|lines| value(&lines, line))))
}

fn depth(line: &str) -> usize {
    (line.len() - line.trim_start().len()) / 4
}

/// The last line of depth `outer` before `line`, which opens the block around the line.
fn opening(lines: &[&str], line: usize, outer: usize) -> usize {
    lines[..line].iter().rposition(|before| depth(before) == outer).unwrap_or(0)
}

fn is_end(line: &str) -> bool {
    line.trim_start().starts_with(|first: char| ")]}".contains(first))
}

/// The name of the field on a line, if it has one, and the rest of the line.
fn field(line: &str) -> (Option<&str>, &str) {
    let line = line.trim_start();
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match line.split_once(": ").filter(|(name, _)| is_name(name)) {
        Some((name, value)) => (Some(name), value),
        None => (None, line),
    }
}

/// The path of a line: the names of the blocks around it and its own, as `.layout.rows` or `.lists[2][1]`.
fn path(lines: &[&str], line: usize) -> String {
    let (mut names, mut line) = (Vec::new(), line);
    for outer in (0..depth(lines[line])).rev() {
        let start = opening(lines, line, outer);
        names.push(match field(lines[line]) {
            (Some(name), _) => format!(".{name}"),
            // The content of an option has the name of the option.
            (None, _) if field(lines[start]).1 == "Some(" => String::new(),
            (None, _) => {
                let is_element = |before: &&&str| depth(before) == outer + 1 && !is_end(before);
                format!("[{}]", lines[start + 1..line].iter().filter(is_element).count())
            }
        });
        line = start;
    }
    names.into_iter().rev().collect()
}

/// The value on a line, or of the block that begins there, as one line.
fn value(lines: &[&str], line: usize) -> String {
    let Some(first) = lines.get(line) else { return "nothing".to_owned() };
    let (_, start) = field(first);
    let block = start.ends_with(|last: char| "([{".contains(last));
    let more = lines[line + 1..].iter().take_while(|next| depth(next) > depth(first));
    let count = if block { more.count() + 1 } else { 0 };
    let mut words = start.to_owned();
    for next in lines[line + 1..].iter().take(count) {
        words.push(' ');
        words.push_str(next.trim());
    }
    let words = words.trim_end_matches(',').replace("[ ", "[").replace("( ", "(");
    words.replace(", ]", "]").replace(", )", ")").replace(", }", " }")
}

#[cfg(test)]
#[path = "../../tests/unit/backend/settings.rs"]
mod tests;
