//! Crossovers measured on a machine, as a file that every rank is given.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Which algorithm is fastest for which message, as `symmetra tune` measured it on a machine. Goes
/// into [`Config::tuning`](super::Config::tuning), the same on every rank; calls it says nothing
/// about are served by the built-in table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Of this format: [`Tuning::VERSION`].
    pub version: u32,
    /// The library that measured.
    pub library: String,
    /// The device it measured on, as the vendor names it.
    pub device: String,
    /// The kind of that device: `cuda`, `host`.
    pub kind: String,
    /// What was measured.
    pub tables: Vec<TunedTable>,
}

/// The choices for one kind of call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedTable {
    /// Ranks.
    pub world_size: usize,
    /// Whether for floating types; else for integers.
    pub floating: bool,
    /// Whether for operands that peers can address.
    pub direct: bool,
    /// Smallest messages first; the last is without limit.
    pub rows: Vec<TunedRow>,
}

/// One range of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedRow {
    /// Its largest message, in bytes; none: without limit.
    pub up_to_bytes: Option<u64>,
    /// What serves it, by name.
    pub algorithm: String,
}

impl Tuning {
    /// The version of the format that this library reads and writes.
    pub const VERSION: u32 = 1;

    /// Reads a file that `symmetra tune` wrote.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be read, [`Error::InvalidArgument`] when it is something
    /// else, of another version, or leaves a message unserved.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read(path)
            .map_err(|error| Error::system(format_args!("read the tuning file {}", path.display()), &error))?;
        let what = format!("the tuning file {}", path.display());
        /// Told apart first: another version may hold anything.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let malformed = |error| Error::invalid(&what, "malformed", error);
        let Versioned { version } = serde_json::from_slice(&text).map_err(malformed)?;
        if version != Self::VERSION {
            return Err(Error::invalid(
                &what,
                format!("of version {version}"),
                format!("it must be {}", Self::VERSION),
            ));
        }
        let tuning: Self = serde_json::from_slice(&text).map_err(malformed)?;
        tuning.validate()?;
        Ok(tuning)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be written; [`Error::InvalidArgument`] as [`load`](Self::load).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.validate()?;
        let path = path.as_ref();
        let mut text =
            serde_json::to_string_pretty(self).map_err(|error| Error::Internal { message: error.to_string() })?;
        text.push('\n');
        std::fs::write(path, text)
            .map_err(|error| Error::system(format_args!("write the tuning file {}", path.display()), &error))
    }

    /// What was measured for a kind of call, if anything.
    pub(crate) fn rows(&self, world_size: usize, floating: bool, direct: bool) -> Option<&[TunedRow]> {
        let table = self
            .tables
            .iter()
            .find(|table| table.world_size == world_size && table.floating == floating && table.direct == direct);
        table.map(|table| table.rows.as_slice())
    }

    /// What ranks compare instead of the whole.
    pub(super) fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let digest = Sha256::digest(text);
        let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{} ({digits})", self.device)
    }

    /// Every table serves every message once.
    pub(super) fn validate(&self) -> Result<()> {
        for table in &self.tables {
            let limits: Vec<u64> = table.rows.iter().map(|row| row.up_to_bytes.unwrap_or(u64::MAX)).collect();
            let rises = limits.windows(2).all(|pair| pair[0] < pair[1]);
            if !rises || limits.last() != Some(&u64::MAX) {
                let limit = "they must rise and end without a limit";
                return Err(Error::invalid("the limits of a tuned table", format!("{limits:?}"), limit));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(limits: &[Option<u64>]) -> Tuning {
        let rows = limits.iter().map(|limit| TunedRow { up_to_bytes: *limit, algorithm: "two-shot-ll".to_owned() });
        Tuning {
            version: Tuning::VERSION,
            library: "0".to_owned(),
            device: "D".to_owned(),
            kind: "host".to_owned(),
            tables: vec![TunedTable { world_size: 4, floating: true, direct: false, rows: rows.collect() }],
        }
    }

    #[test]
    fn files_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tuning.json");
        let good = tuning(&[Some(1024), None]);
        good.save(&path).unwrap();
        assert_eq!(Tuning::load(&path).unwrap(), good);
        assert_eq!(good.rows(4, true, false).unwrap().len(), 2);
        assert_eq!(good.rows(4, true, true), None);
        assert_eq!(good.rows(3, true, false), None);
        assert_ne!(good.digest(), tuning(&[Some(1025), None]).digest());
    }

    #[test]
    fn what_is_no_tuning_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tuning.json");
        let words = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Tuning::load(&path).unwrap_err().to_string()
        };
        assert!(words("[]").contains("malformed"));
        assert!(words(r#"{"version": 2, "more": 1}"#).contains("of version 2, but it must be 1"));
        assert!(words(r#"{"version": 1, "more": 1}"#).contains("unknown field `more`"));
        for limits in [&[Some(1024)][..], &[None, None], &[Some(5), Some(4), None], &[]] {
            assert!(tuning(limits).save(&path).is_err(), "{limits:?}");
        }
        assert!(matches!(Tuning::load(directory.path().join("none")), Err(Error::System { errno: 2, .. })));
    }
}
