//! The text output of `info`: first the topics of the options, then at most a screen of the rest.

use symmetra::TunedCodec;

use super::choices::{Choices, RangeInfo, Types, explained, rows};
use super::{Args, Info, ProductsInfo, surroundings};
use harness::failure::CommandFailure;
use harness::table::{Table, wrapped};
use harness::{bytes, output};

pub(super) fn print(info: &Info, args: &Args) -> Result<(), CommandFailure> {
    asked(info, args)?;
    devices(info)?;
    settings(info, args)?;
    output::line(format_args!("\nAll-reduce of {} ranks on {}", info.ranks, info.device))?;
    match args.choices {
        true => output::line(algorithms(&info.algorithms)),
        false => output::line(chosen(&info.algorithms)),
    }?;
    for TunedCodec { codec, from_bytes, .. } in &info.codecs {
        let from =
            from_bytes.map_or_else(|| "at no size".to_owned(), |from| format!("from {} on", bytes::format(from)));
        output::line(format_args!("{codec} is faster {from}, measured by `symmetra tune`"))?;
    }
    if args.choices {
        exchanges(info)?;
    }
    if args.variables {
        output::line("\nEnvironment variables; what a program sets beats them")?;
        output::line(surroundings::variables_table(&info.variables))?;
    }
    let more = [("--settings", args.settings), ("--choices", args.choices), ("--variables", args.variables)];
    let more: Vec<_> = more.into_iter().filter(|(_, given)| !given).map(|(flag, _)| flag).collect();
    if more.is_empty() { Ok(()) } else { output::line(format_args!("\nmore: {}", more.join(", "))) }
}

/// Prints the topics of the options.
fn asked(info: &Info, args: &Args) -> Result<(), CommandFailure> {
    if let Some(layout) = &info.layout {
        output::line(format_args!("Parallel groups of {} ranks", layout[0].ranks()))?;
        output::line(format_args!("{}\n", surroundings::layout_table(layout)))?;
    }
    if let Some(grid) = &info.grid {
        output::line(grid.title())?;
        output::line(grid.places())?;
        output::line(format_args!("{}\n", grid.choices()))?;
    }
    if let Some(layer) = &info.experts {
        output::line(layer.title(info.ranks))?;
        output::line(layer.table())?;
        output::line(format_args!("{}\n", layer.methods()))?;
    }
    if args.asks_norms() {
        let quantised = info.quantise.as_ref().map_or_else(String::new, |format| format!(", quantised as {format}"));
        output::line(format_args!("All-reduce and norm of rows of {} elements{quantised}", info.hidden))?;
        output::line(format_args!("{}\n", algorithms(&info.norms)))?;
    }
    Ok(())
}

fn devices(info: &Info) -> Result<(), CommandFailure> {
    output::line(wrapped(&crate::VERSION))?;
    let mut devices = Table::new(["device", "name", "memory", "processors", "capability", "uuid", "versions"], []);
    for device in &info.devices {
        devices.add_row([
            format!("{} {}", device.kind, device.ordinal),
            device.name.clone(),
            format!("{:.1} GiB", device.memory_bytes as f64 / f64::from(1 << 30)),
            device.multiprocessors.to_string(),
            device.compute_capability.clone(),
            device.uuid.clone(),
            device.versions.clone(),
        ]);
    }
    output::line(devices)?;
    for device in &info.devices {
        output::line(wrapped(&format!("multicast of {} {}: {}", device.kind, device.ordinal, device.multicast)))?;
    }
    info.broken.iter().try_for_each(|broken| output::line(format_args!("{}: {}", broken.device, broken.error)))?;
    if !info.peer_access.is_empty() {
        output::line("\nPeer access as the driver reports it (`symmetra doctor` probes it)")?;
        output::line(peers(info))?;
    }
    output::line(wrapped(&format!("NCCL: {}", info.nccl)))?;
    for ProductsInfo { device, library } in &info.products {
        output::line(wrapped(&format!("products on {device}: {library}")))?;
    }
    Ok(())
}

/// Settings of an environment in this process. A refused setting is no default.
fn settings(info: &Info, args: &Args) -> Result<(), CommandFailure> {
    let is_shown = |source: &str| args.settings || source != "default";
    let shown: Vec<_> = info.config.iter().filter(|(_, _, source)| is_shown(source)).collect();
    output::line("\nSettings of an environment here; what a program sets beats them")?;
    let others = shown.len() < info.config.len();
    if !shown.is_empty() {
        let mut settings = Table::new(["setting", "value", "from"], []);
        for (name, value, source) in shown {
            settings.add_row([*name, value.as_str(), source.as_str()]);
        }
        output::line(settings)?;
    }
    if others {
        output::line("all other settings are defaults")?;
    }
    output::line(format_args!("memory on each of {} ranks: {} bytes", info.ranks, info.arena_bytes))
}

/// The transports of all other operations.
fn exchanges(info: &Info) -> Result<(), CommandFailure> {
    output::line("\nEvery other collective, by bytes from one rank to another")?;
    let rows = info.transports.iter().map(|row| (row.collective.to_owned(), row.memory, &row.range));
    output::line(explained(["collective", "memory", "bytes", "transport", "why"], rows))
}

fn peers(info: &Info) -> Table {
    // The first device is the host.
    let names: Vec<String> =
        info.devices.iter().skip(1).map(|device| format!("{} {}", device.kind, device.ordinal)).collect();
    let headings = std::iter::once("").chain(names.iter().map(String::as_str));
    let mut peers = Table::new(headings, []);
    for (from, row) in names.iter().zip(&info.peer_access) {
        let cells = row.iter().map(|reached| if *reached { "yes" } else { "no" });
        peers.add_row(std::iter::once(from.as_str()).chain(cells));
    }
    peers
}

/// The bytes of each range, with its reason.
fn algorithms(all: &[Choices<Types>]) -> Table {
    explained(["dtype", "memory", "bytes", "algorithm", "why"], rows(all, Types::name))
}

/// The ranges of each type and memory in one row, and the reasons below.
fn chosen(all: &[Choices<Types>]) -> String {
    let mut reasons: Vec<&str> = all.iter().flat_map(|choices| &choices.ranges).map(|range| range.reason).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let mut rows = Table::new(["dtype", "memory", "algorithm"], []);
    for choices in all {
        let algorithm = |range: &RangeInfo| match range.up_to_bytes {
            Some(up_to) => format!("{} up to {},", range.choice, bytes::format(up_to)),
            None => range.choice.to_owned(),
        };
        let algorithms: Vec<String> = choices.ranges.iter().map(algorithm).collect();
        rows.add_row([choices.calls.name(), choices.memory.to_owned(), algorithms.join(" ")]);
    }
    let reasons = reasons.iter().map(|reason| wrapped(&format!("why: {reason}")));
    std::iter::once(rows.to_string()).chain(reasons).collect::<Vec<_>>().join("\n")
}
