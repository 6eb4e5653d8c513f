//! An `ncclConfig_t` of any version.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::MAGIC;
use crate::error::{Result, argument};
use crate::settings::FrontSettings;

/// An integer that the program left undefined.
const UNDEFINED: c_int = c_int::MIN;

/// The least and the largest size that is read. Later versions of NCCL add fields at the end.
const LEAST: usize = 32;
const KNOWN: usize = 96;

/// The offsets of the integers, with the values that NCCL allows.
const FLAGS: [(&str, usize); 4] =
    [("splitShare", 40), ("collnetEnable", 56), ("shrinkShare", 64), ("nvlinkCentricSched", 76)];
const BLOCKING: usize = 16;
const CGA_CLUSTER_SIZE: usize = 20;
const MIN_CTAS: usize = 24;
const MAX_CTAS: usize = 28;
const COMM_NAME: usize = 48;
const GRAPH_USAGE_MODE: usize = 80;

/// The value of `graphUsageMode` for graphs and eager calls in one order.
const MIXED: c_int = 2;

/// The settings of a communicator.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommConfig {
    /// Whether an opening returns before the communicator is open.
    pub(crate) returns_early: bool,
    pub(crate) name: Option<String>,
    pub(crate) most_blocks: Option<u32>,
    /// Whether graphs, and eager calls on any stream, keep one order.
    pub(crate) graph_mixing: bool,
    /// The bytes of the program, for the real NCCL.
    pub(crate) raw: Vec<u8>,
}

/// The bytes of a config, as far as its size and the known fields go.
struct ConfigBytes(Vec<u8>);

impl ConfigBytes {
    fn get<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset + N)?.try_into().ok()
    }

    fn int(&self, offset: usize) -> Option<c_int> {
        self.get(offset).map(c_int::from_ne_bytes).filter(|value| *value != UNDEFINED)
    }
}

impl CommConfig {
    /// The name of the communicator in texts.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("a communicator")
    }

    /// The default of the program's variables.
    pub(crate) fn of(settings: &FrontSettings) -> Self {
        Self { most_blocks: settings.max_ctas, graph_mixing: settings.graph_mixing, ..Self::default() }
    }

    /// Reads the program's config, or the default where `config` is null.
    ///
    /// # Safety
    /// `config` is null, or the address of an `ncclConfig_t` whose first field is its size.
    pub(crate) unsafe fn read(config: *const c_void, settings: &FrontSettings) -> Result<Self> {
        let mut read = Self { returns_early: settings.returns_early.unwrap_or_default(), ..Self::of(settings) };
        if config.is_null() {
            return Ok(read);
        }
        // SAFETY: the caller's promise: the size is the first field.
        let size = unsafe { config.cast::<usize>().read_unaligned() };
        if size < LEAST {
            return Err(argument("the size of the config", size, format!("NCCL's has at least {LEAST} bytes")));
        }
        // SAFETY: the struct has `size` bytes, and no more are read.
        let bytes = unsafe { std::slice::from_raw_parts(config.cast::<u8>(), size.min(KNOWN)) }.to_vec();
        let fields = ConfigBytes(bytes);
        let magic = fields.get(8).map(u32::from_ne_bytes);
        if magic != Some(MAGIC) {
            let found = magic.unwrap_or(0);
            return Err(argument(
                "the magic number of the config",
                format!("{found:#x}"),
                format!("it must be {MAGIC:#x}"),
            ));
        }
        let ranged = |name: &str, offset: usize, range: std::ops::RangeInclusive<c_int>| match fields.int(offset) {
            Some(value) if !range.contains(&value) => {
                Err(argument(name, value, format!("it must be {} to {}", range.start(), range.end())))
            }
            value => Ok(value),
        };
        FLAGS.iter().try_for_each(|(name, offset)| ranged(name, *offset, 0..=1).map(drop))?;
        ranged("cgaClusterSize", CGA_CLUSTER_SIZE, 0..=c_int::MAX)?;
        let usage = ranged("graphUsageMode", GRAPH_USAGE_MODE, 0..=MIXED)?;
        read.graph_mixing = settings.graph_mixing && usage.unwrap_or(MIXED) == MIXED;
        let blocking = ranged("blocking", BLOCKING, 0..=1)?;
        let least = ranged("minCTAs", MIN_CTAS, 1..=c_int::MAX)?;
        let most = ranged("maxCTAs", MAX_CTAS, 1..=c_int::MAX)?;
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            return Err(argument("minCTAs", least, format!("maxCTAs is {most}")));
        }
        read.returns_early = settings.returns_early.unwrap_or(blocking == Some(0));
        read.most_blocks = most.map(|most| most.unsigned_abs()).or(settings.max_ctas);
        let name = fields.get(COMM_NAME).map(usize::from_ne_bytes).unwrap_or(0) as *const c_char;
        if !name.is_null() {
            // SAFETY: NCCL's contract: a string that ends with a zero, or null.
            read.name = Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        }
        read.raw = fields.0;
        // The real library reads as many bytes as the number in the first field.
        read.raw[..size_of::<usize>()].copy_from_slice(&size.min(KNOWN).to_ne_bytes());
        Ok(read)
    }
}
