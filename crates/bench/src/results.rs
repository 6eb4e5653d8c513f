//! The file that `--output` writes: a table with the place and time of its run, in the form of bench/results.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use symmetra::DeviceKind;

use harness::columns::{self, Column};
use harness::devices::RankDevice;
use harness::failure::CommandFailure;

/// Versions of other libraries, by name.
pub(super) type Versions = BTreeMap<&'static str, String>;

/// Writes the file, with the fields that `bench/tables.py` reads. Opens a device, so called when the ranks have ended.
pub(super) fn save<R>(
    path: &Path,
    title: &str,
    devices: &[RankDevice],
    peers: &Versions,
    (columns, rows): (&[Column<R>], &[R]),
) -> Result<(), CommandFailure> {
    let (device, driver) = device(devices)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (headings, rows) = columns::json(columns, rows);
    let fields = [
        ("title", json(&title)?),
        ("command", json(&command(std::env::args().skip(1)))?),
        ("device", json(&device)?),
        ("ranks", json(&devices.len())?),
        // Null where the host has no driver.
        ("driver", json(&driver)?),
        ("commit", json(&env!("BUILD_COMMIT"))?),
        ("date", json(&date(since.as_secs() / (24 * 60 * 60)))?),
        ("peers", json(peers)?),
        ("columns", json(&headings)?),
        ("rows", format!("[\n    {}\n  ]", rows.join(",\n    "))),
    ];
    let fields = fields.map(|(name, value)| format!("  \"{name}\": {value}"));
    let text = format!("{{\n{}\n}}\n", fields.join(",\n"));
    std::fs::write(path, text).map_err(CommandFailure::doing(format!("write {}", path.display())))
}

fn json(value: &impl Serialize) -> Result<String, CommandFailure> {
    serde_json::to_string(value).map_err(CommandFailure::doing("write JSON"))
}

/// The name of the first device, and the version of its driver.
fn device(devices: &[RankDevice]) -> Result<(String, Option<String>), CommandFailure> {
    match devices.first() {
        Some(device) if device.kind() != DeviceKind::Host => {
            let device = device.open()?;
            Ok((device.name().trim_start_matches("NVIDIA ").to_owned(), driver(&device.versions())))
        }
        _ => Ok(("CPU".to_owned(), None)),
    }
}

/// The version of the driver in the versions of a device: `driver 13.0 (580.159.04), runtime 13.0`.
fn driver(versions: &str) -> Option<String> {
    let driver = versions.strip_prefix("driver ")?.split(',').next()?;
    let package = driver.split_once('(').and_then(|(_, package)| package.strip_suffix(')'));
    Some(package.unwrap_or(driver).to_owned())
}

/// The command line, without the file of results.
fn command(args: impl Iterator<Item = String>) -> String {
    let mut words = vec!["symmetra-bench".to_owned()];
    let mut is_path = false;
    for arg in args {
        if !is_path && arg != "--output" && !arg.starts_with("--output=") {
            words.push(arg.clone());
        }
        is_path = arg == "--output";
    }
    words.join(" ")
}

/// The date of a number of days after 1970-01-01, in the calendar of Gregory: years begin in March, so that a leap day
/// is the last day of its year.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/results.rs"]
mod tests;
