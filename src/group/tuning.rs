//! Crossovers measured on a machine, kept in a file that every rank loads.

mod check;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Once;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bootstrap::handshake::random;
use crate::bootstrap::shown;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::settings::{setters, written};

/// The fastest algorithm for each message, as `symmetra tune` measured it on a machine. It is a setting
/// ([`Config::tuning`](super::Config::tuning)) that must be equal on every rank. The built-in table serves calls for
/// which it has no rows. On devices of another [kind](Self::kind) a tuning has no effect, which is logged once a
/// process.
///
/// World sizes are 1 to 16, names must be known names, no two tables are for the same calls, and the rows of a table
/// serve every size once. [`load`](Self::load), [`save`](Self::save) and the opening of a group refuse other contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tuning {
    /// Version of the file format: [`Tuning::VERSION`].
    pub version: u32,
    /// Version of the library that measured.
    pub library: String,
    /// Time of the measurement, in seconds since 1970.
    pub measured_unix_s: u64,
    /// Name of the measured device, as the vendor provides it.
    pub device: String,
    /// Versions of the device's driver and runtime.
    pub driver: String,
    /// Kind of the device: `cuda`, `host`.
    pub kind: String,
    /// The measured choices.
    pub tables: Vec<TunedTable>,
    /// The timings on which the choices rest. They have no effect.
    pub timings: Vec<TunedTiming>,
    /// The sizes from which codecs are faster. Files of version 1 have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<TunedCodec>,
    /// The choices for norms. Files of version 1 have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub norms: Vec<TunedNorm>,
    /// The choices for experts. Older files have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<TunedExperts>,
    /// The choices for grids. Older files have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grids: Vec<TunedGrid>,
}

setters! { Tuning {
    version: u32, library: String, measured_unix_s: u64, device: String, driver: String, kind: String,
    tables: Vec<TunedTable>, timings: Vec<TunedTiming>, codecs: Vec<TunedCodec>, norms: Vec<TunedNorm>,
    experts: Vec<TunedExperts>, grids: Vec<TunedGrid>,
} }

/// A tuning of this version without measurements.
impl Default for Tuning {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            measured_unix_s: 0,
            device: String::new(),
            driver: String::new(),
            kind: String::new(),
            tables: Vec::new(),
            timings: Vec::new(),
            codecs: Vec::new(),
            norms: Vec::new(),
            experts: Vec::new(),
            grids: Vec::new(),
        }
    }
}

/// The size from which an all-reduce by a codec is faster than an unquantised one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedCodec {
    /// World size.
    pub world_size: usize,
    /// Name of the codec.
    pub codec: String,
    /// The smallest message, in bytes, from which on the codec was faster at every size; `None` if the codec was not
    /// faster at the largest size.
    pub from_bytes: Option<u64>,
}

setters! { TunedCodec { world_size: usize, codec: String, from_bytes: Option<u64> } }

/// The choices for an all-reduce and norm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedNorm {
    /// World size.
    pub world_size: usize,
    /// Elements of a measured row. The choices serve rows of any length.
    pub hidden: usize,
    /// Ranges of the bytes of all rows, in ascending order; the last has no upper limit. The algorithm is the sentinel
    /// one-shot or two-shot, which sum and norm in one kernel, or `apart` for separate kernels.
    pub rows: Vec<TunedRow>,
}

setters! { TunedNorm { world_size: usize, hidden: usize, rows: Vec<TunedRow> } }

/// The choices for experts whose method is chosen by the library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedExperts {
    /// World size.
    pub world_size: usize,
    /// Experts of the measured layer. The choices serve any layer.
    pub experts: usize,
    /// Experts of a token in the measured layer.
    pub top_k: usize,
    /// Elements of a row in the measured layer.
    pub hidden: usize,
    /// Ranges of the most bytes of rows that a rank sends in a dispatch, in ascending order; the last has no upper
    /// limit. The algorithm is `packets` or `direct`.
    pub rows: Vec<TunedRow>,
}

setters! { TunedExperts { world_size: usize, experts: usize, top_k: usize, hidden: usize, rows: Vec<TunedRow> } }

/// The choices for an operation over a grid, as [`Mixed`](crate::mixed::Mixed) runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedGrid {
    /// Ranks of a host that hold parts of one tensor.
    pub local_tensor: usize,
    /// Ranks of a host that work on different data.
    pub local_data: usize,
    /// Hosts that hold parts of one tensor.
    pub across_tensor: usize,
    /// Hosts that work on different data.
    pub across_data: usize,
    /// Name of the operation.
    pub operation: String,
    /// True for operands that peers can address.
    pub direct: bool,
    /// The smallest and the largest measured bytes of `x` or of a slice: rows for other sizes are those of the built-in
    /// table. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bytes: Option<[u64; 2]>,
    /// Ranges of the bytes of `x` or of a slice, in ascending order; the last has no upper limit. The algorithm is a mode.
    pub rows: Vec<TunedRow>,
}

setters! { TunedGrid {
    local_tensor: usize, local_data: usize, across_tensor: usize, across_data: usize, operation: String,
    direct: bool, measured_bytes: Option<[u64; 2]>, rows: Vec<TunedRow>,
} }

/// The choices for one kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedTable {
    /// World size.
    pub world_size: usize,
    /// True for floating types, false for integers.
    pub floating: bool,
    /// True for operands that peers can address.
    pub direct: bool,
    /// True for [`Determinism::Exact`](super::Determinism::Exact).
    pub exact: bool,
    /// Ranges of message size in ascending order; the last has no upper limit.
    pub rows: Vec<TunedRow>,
}

setters! { TunedTable { world_size: usize, floating: bool, direct: bool, exact: bool, rows: Vec<TunedRow> } }

/// One range of message sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedRow {
    /// The largest message of the range, in bytes; `None` means no limit.
    pub up_to_bytes: Option<u64>,
    /// Name of the algorithm that serves the range.
    pub algorithm: String,
}

setters! { TunedRow { up_to_bytes: Option<u64>, algorithm: String } }

/// The time of every measured algorithm at one message size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedTiming {
    /// World size.
    pub world_size: usize,
    /// True for a floating type, false for integers.
    pub floating: bool,
    /// True for operands that peers can address.
    pub direct: bool,
    /// Message size.
    pub bytes: u64,
    /// Nanoseconds by algorithm name.
    pub times_ns: BTreeMap<String, u64>,
}

setters! { TunedTiming {
    world_size: usize, floating: bool, direct: bool, bytes: u64, times_ns: BTreeMap<String, u64>,
} }

impl Tuning {
    /// The version of the format that this library writes. The library reads this version and older ones.
    pub const VERSION: u32 = 2;

    /// Reads a file that `symmetra tune` wrote.
    ///
    /// # Errors
    /// [`Error::System`] if the file cannot be read. [`Error::InvalidArgument`] if it is not a tuning file, has another
    /// version, or has contents that [`Tuning`] does not allow; the error names the file and the field.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = fs::read(path)
            .map_err(|error| Error::system(format_args!("read the tuning file {}", path.display()), &error))?;
        let what = format!("the tuning file {}", path.display());
        /// Parsed first: a file of another version may have any other contents.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        // The error repeats words of the file.
        let malformed =
            |error: serde_json::Error| Error::invalid(&what, "malformed", shown(error.to_string().as_bytes()));
        let Versioned { version } = serde_json::from_slice(&text).map_err(malformed)?;
        if !(1..=Self::VERSION).contains(&version) {
            let limit = format!("it must be at least 1 and at most {}", Self::VERSION);
            return Err(Error::invalid(&what, format!("of version {version}"), limit));
        }
        let tuning: Self = serde_json::from_slice(&text).map_err(malformed)?;
        check::check(&tuning, &what)?;
        Ok(tuning)
    }

    /// Writes the file atomically: on failure the old file stays. A symbolic link's target is replaced.
    ///
    /// # Errors
    /// [`Error::System`] if the file cannot be written. [`Error::InvalidArgument`] for contents that
    /// [`load`](Self::load) would refuse, and for a path that is a device, pipe or socket.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.validate()?;
        let path = path.as_ref();
        let mut text = written(serde_json::to_string_pretty(self))?;
        text.push('\n');
        let cannot = |error| Error::system(format_args!("write the tuning file {}", path.display()), &error);
        let there = match fs::symlink_metadata(path) {
            Ok(_) => path.canonicalize().map_err(cannot)?,
            Err(_) => path.to_owned(),
        };
        // Writing to a folder fails by itself.
        if there.exists() && !there.is_file() && !there.is_dir() {
            return Err(Error::invalid("the tuning file", path.display(), "it must be a regular file, to be replaced"));
        }
        replace(&there, text.as_bytes())
    }

    pub(crate) fn rows(&self, world_size: usize, floating: bool, direct: bool, exact: bool) -> Option<&[TunedRow]> {
        let key = (world_size, floating, direct, exact);
        let table =
            self.tables.iter().find(|table| (table.world_size, table.floating, table.direct, table.exact) == key);
        table.map(|table| table.rows.as_slice())
    }

    pub(crate) fn norm_rows(&self, world_size: usize) -> Option<&[TunedRow]> {
        let norm = self.norms.iter().find(|norm| norm.world_size == world_size);
        norm.map(|norm| norm.rows.as_slice())
    }

    pub(crate) fn expert_rows(&self, world_size: usize) -> Option<&[TunedRow]> {
        let experts = self.experts.iter().find(|experts| experts.world_size == world_size);
        experts.map(|experts| experts.rows.as_slice())
    }

    /// The entry of a grid by its tensor and data ranks of a host, and its tensor and data hosts.
    pub(crate) fn grid(&self, sizes: [usize; 4], operation: &str, direct: bool) -> Option<&TunedGrid> {
        let is_asked = |grid: &&TunedGrid| {
            let of = [grid.local_tensor, grid.local_data, grid.across_tensor, grid.across_data];
            (of, grid.operation.as_str(), grid.direct) == (sizes, operation, direct)
        };
        self.grids.iter().find(is_asked)
    }

    /// The entry of a codec for a world size.
    pub(crate) fn codec(&self, world_size: usize, name: &str) -> Option<&TunedCodec> {
        self.codecs.iter().find(|codec| (codec.world_size, codec.codec.as_str()) == (world_size, name))
    }

    /// A digest that ranks compare instead of the whole file.
    pub(super) fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let digest = Sha256::digest(text);
        let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{} ({digits})", self.device)
    }

    /// Checks a tuning that the program may have changed.
    pub(super) fn validate(&self) -> Result<()> {
        check::check(self, "the tuning")
    }

    /// Whether the tuning has any choice.
    fn chooses(&self) -> bool {
        let Self { tables, codecs, norms, experts, grids, .. } = self;
        !(tables.is_empty() && codecs.is_empty() && norms.is_empty() && experts.is_empty() && grids.is_empty())
    }

    /// Whether the choices are for devices of this kind. Logs once a process if they are for another kind.
    pub(crate) fn serves(&self, kind: DeviceKind) -> bool {
        static SAID: Once = Once::new();
        let serves = self.kind == kind.name();
        if !serves && self.chooses() {
            let (of, device) = (shown(self.kind.as_bytes()), shown(self.device.as_bytes()));
            SAID.call_once(|| {
                crate::log!(WARN, "a tuning of {of} `{device}` has no effect on {kind}: the built-in choices serve");
            });
        }
        serves
    }
}

/// Writes `contents` to a new file in the folder of `path`, then renames the new file to `path`. The name of the new
/// file is random, and existing files are never opened: no other user can put a link in its place.
fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let cannot =
        |error: std::io::Error| Error::system(format_args!("write the tuning file {}", path.display()), &error);
    let partial = path.with_file_name(format!(".symmetra-tuning-{:032x}", u128::from_ne_bytes(random()?)));
    let mut file = File::create_new(&partial).map_err(cannot)?;
    let written = file.write_all(contents).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // The remaining file is useless, and the first error is reported.
        let _ = fs::remove_file(&partial);
    }
    written.map_err(cannot)
}

#[cfg(test)]
#[path = "../../tests/unit/group/tuning.rs"]
mod tests;
