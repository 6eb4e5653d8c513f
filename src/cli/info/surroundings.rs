//! What an engine's environment looks like: the groups of a layout, and the variables that are set.

use comfy_table::Table;
use serde::Serialize;
use symmetra::environment::{Layout, Parallelism, VARIABLES};

use super::table;
use crate::failure::Failure;

/// The groups of one parallelism.
#[derive(Debug, Serialize)]
pub(super) struct Groups {
    parallelism: &'static str,
    groups: Vec<Vec<usize>>,
}

impl Groups {
    pub(super) fn ranks(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }
}

/// The layout of `sizes` = tensor, pipeline, data over as many ranks as they take.
pub(super) fn layout(sizes: [usize; 3]) -> Result<Vec<Groups>, Failure> {
    let [tensor, pipeline, data] = sizes;
    let world_size = sizes.iter().product();
    let layout = Layout::new(world_size, tensor, pipeline, data)?;
    let groups =
        |parallelism| Groups { parallelism: Parallelism::name(parallelism), groups: layout.groups(parallelism) };
    Ok(Parallelism::ALL.map(groups).into())
}

pub(super) fn layout_table(layout: &[Groups]) -> Table {
    let mut rows = table(&["", "groups of ranks"]);
    for groups in layout {
        let words = groups.groups.iter().map(|ranks| format!("{ranks:?}")).collect::<Vec<_>>();
        rows.add_row([groups.parallelism.to_owned(), words.join(" ")]);
    }
    rows
}

/// A variable as it stands.
#[derive(Debug, Serialize)]
pub(super) struct Variable {
    name: &'static str,
    /// None: unset.
    value: Option<String>,
    default: &'static str,
    effect: &'static str,
}

/// Every variable; the value of a secret stays one.
pub(super) fn variables() -> Vec<Variable> {
    let value = |name: &str| {
        let value = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(if name.contains("SECRET") { "hidden".to_owned() } else { value })
    };
    let variable = |known: &symmetra::environment::Variable| Variable {
        name: known.name,
        value: value(known.name),
        default: known.default,
        effect: known.effect,
    };
    VARIABLES.iter().map(variable).collect()
}

pub(super) fn variables_table(variables: &[Variable]) -> Table {
    let mut rows = table(&["variable", "value", "from", "effect"]);
    for Variable { name, value, default, effect } in variables {
        let (value, from) = match value {
            Some(value) => (value.as_str(), "environment"),
            None => (*default, "default"),
        };
        rows.add_row([*name, value, from, *effect]);
    }
    rows
}
