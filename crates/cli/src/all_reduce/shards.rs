//! The user's own tensors: one file a rank, summed into one file.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use symmetra::{Algorithm, Communicator, MAX_WORLD_SIZE, Stream, SymmetricBuffer};
use tempfile::TempDir;

use super::reference::checksum;
use crate::element::Summand;
use crate::failure::{Failure, spawn};
use crate::names::by_name;
use crate::ranks::{Say, Task};
use crate::tensor_file::{Format, Header};
use crate::{signals, target};

#[derive(clap::Args)]
#[command(next_help_heading = "Tensors in files")]
pub(super) struct FileArgs {
    /// Each rank's tensor: a .npy or .safetensors path in which {rank} stands for 0, 1, ...
    #[arg(long, value_name = "PATH", requires = "output", conflicts_with_all = SWEEP_ONLY)]
    pub(super) input: Option<String>,

    /// Where the sum goes, in the same format; replaced if it exists
    #[arg(long, value_name = "PATH", requires = "input")]
    output: Option<PathBuf>,

    /// Which tensor of the .safetensors files
    #[arg(long, value_name = "NAME", requires = "input")]
    tensor: Option<String>,
}

/// Flags that mean nothing with `--input`.
const SWEEP_ONLY: [&str; 10] =
    ["dtype", "op", "min_bytes", "max_bytes", "iterations", "graph", "in_place", "plain", "seed", "json"];

/// What stands for the rank in the path of the inputs.
const PLACEHOLDER: &str = "{rank}";

/// Up to which number files of later ranks are looked for.
const SEARCHED: usize = 1024;

/// The files of a run, all of one type and shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shards {
    format: Format,
    /// One for each rank.
    inputs: Vec<PathBuf>,
    header: Header,
    #[serde(with = "by_name")]
    algorithm: Algorithm,
    /// Where rank 0 puts the sum.
    unfinished: PathBuf,
}

impl Task for Shards {
    const NAME: &'static str = "shards";
    /// The rank and the checksum of its sum.
    type Found = (usize, u64);

    /// Room for one tensor, which is summed in place.
    fn heap_bytes(&self) -> u64 {
        self.header.bytes() + (64 << 10)
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Self::Found>) -> Result<(), Failure> {
        with_element!(self.header.dtype, T => self.sum::<T>(communicator, say))
    }
}

/// A run whose inputs fit, and whose output has a place.
pub(super) struct Opened {
    pub(super) shards: Shards,
    output: PathBuf,
    /// Holds the sum until it is whole.
    _unfinished: TempDir,
}

/// Looks at the files before any rank is started.
pub(super) fn open(
    files: &FileArgs,
    template: &str,
    ranks: Option<u64>,
    algorithm: Algorithm,
) -> Result<Opened, Failure> {
    let output = files.output.as_deref().ok_or_else(|| Failure::usage("--input needs --output"))?;
    let format = Format::of(Path::new(template), files.tensor.as_deref())?;
    let inputs = inputs(template, ranks)?;
    check_output(output, &format, &inputs)?;
    let output = target::check_replaced("--output", output)?;
    let header = common_header(&format, &inputs)?;
    // In the output's own directory, so that renaming the sum is atomic.
    let directory = output.parent().unwrap_or(Path::new("/"));
    // A directory: once it is removed, no rank can create a file in it.
    let mut unfinished = tempfile::Builder::new();
    unfinished.prefix(".symmetra-").suffix(".unfinished").permissions(Permissions::from_mode(0o700));
    let signals = signals::watched()?;
    let unfinished = unfinished.tempdir_in(directory);
    let unfinished = unfinished.map_err(Failure::doing(format!("write into {}", directory.display())))?;
    clear_at_signal(signals, unfinished.path().to_owned())?;
    let shards = Shards { format, inputs, header, algorithm, unfinished: unfinished.path().join("sum") };
    Ok(Opened { shards, output, _unfinished: unfinished })
}

/// Removes the unfinished sum when a signal ends this command.
fn clear_at_signal(mut signals: Signals, unfinished: PathBuf) -> Result<(), Failure> {
    let clear = move || {
        if let Some(signal) = signals.forever().next() {
            // A rank that creates a file at this moment makes the removal fail once.
            while std::fs::remove_dir_all(&unfinished).is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty)
            {
            }
            // Ends this process, and so the ranks.
            let _ = emulate_default_handler(signal);
        }
    };
    spawn(clear).map(drop)
}

impl Opened {
    /// Gives the sum its name if all ranks have the same.
    pub(super) fn finish(self, mut checksums: Vec<(usize, u64)>) -> Result<(), Failure> {
        checksums.sort_unstable();
        if let Some(pair) = checksums.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            let (one, other) = (pair[0].0, pair[1].0);
            return Err(Failure::failed(format!(
                "ranks {one} and {other} ended with different sums: nothing was written"
            )));
        }
        finish(&self.shards.unfinished, &self.output)?;
        eprintln!(
            "the sum of {} tensors of {} is in {}",
            self.shards.ranks(),
            self.shards.header,
            self.output.display()
        );
        Ok(())
    }
}

/// Gives the sum its name and the permissions of a new file.
fn finish(sum: &Path, output: &Path) -> Result<(), Failure> {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let mode = Permissions::from_mode(0o666 & !mask.bits());
    std::fs::set_permissions(sum, mode)
        .and_then(|()| std::fs::File::open(sum)?.sync_all())
        .and_then(|()| std::fs::rename(sum, output))
        .map_err(Failure::doing(format!("write {}", output.display())))
}

/// The path of each rank: as many as asked, else as there are.
fn inputs(template: &str, asked: Option<u64>) -> Result<Vec<PathBuf>, Failure> {
    if !template.contains(PLACEHOLDER) {
        return Err(Failure::usage(format!(
            "--input is `{template}`, but it must contain {PLACEHOLDER}, for which every rank puts its number"
        )));
    }
    let path = |rank: usize| PathBuf::from(template.replace(PLACEHOLDER, &rank.to_string()));
    let ranks = match asked {
        Some(ranks) => ranks as usize,
        None => (0..).take_while(|rank| path(*rank).exists()).count(),
    };
    // A tensor left out unnoticed would be a wrong sum.
    if let Some(later) = asked.map_or_else(|| (ranks + 1..SEARCHED).find(|rank| path(*rank).exists()), |_| None) {
        let (missing, later) = (path(ranks), path(later));
        return Err(Failure::failed(format!(
            "there is {}, but no {}: ranks count from 0 without a gap (--ranks takes the first)",
            later.display(),
            missing.display()
        )));
    }
    match ranks {
        0 => Err(Failure::failed(format!("there is no file {}: ranks count from 0", path(0).display()))),
        1..=MAX_WORLD_SIZE => Ok((0..ranks).map(path).collect()),
        _ => Err(Failure::usage(format!(
            "there are {ranks} files like {}, but at most {MAX_WORLD_SIZE} ranks (--ranks takes the first)",
            path(0).display()
        ))),
    }
}

/// The output is one file, of the same format, and none of the inputs.
fn check_output(output: &Path, format: &Format, inputs: &[PathBuf]) -> Result<(), Failure> {
    let shown = output.display();
    if output.to_string_lossy().contains(PLACEHOLDER) {
        return Err(Failure::usage(format!("--output is `{shown}`, but the sum is one file: leave {PLACEHOLDER} out")));
    }
    if !format.fits(output) {
        return Err(Failure::usage(format!(
            "--output is `{shown}`, but it must end in .{} as --input",
            format.extension()
        )));
    }
    let Ok(canonical) = output.canonicalize() else { return Ok(()) };
    let rank = inputs.iter().position(|input| input.canonicalize().is_ok_and(|input| input == canonical));
    match rank {
        Some(rank) => Err(Failure::usage(format!("--output is `{shown}`, but that is the input of rank {rank}"))),
        None => Ok(()),
    }
}

/// What every file's header says.
fn common_header(format: &Format, inputs: &[PathBuf]) -> Result<Header, Failure> {
    let headers: Vec<Header> = inputs.iter().map(|input| format.header(input)).collect::<Result<_, _>>()?;
    let Some(first) = headers.first() else { return Err(Failure::failed("there are no inputs")) };
    for (rank, header) in headers.iter().enumerate() {
        if header != first {
            return Err(Failure::failed(format!(
                "ranks 0 and {rank} differ: {} is {first}, but {} is {header}",
                inputs[0].display(),
                inputs[rank].display()
            )));
        }
    }
    Ok(first.clone())
}

impl Shards {
    pub(super) fn ranks(&self) -> usize {
        self.inputs.len()
    }

    /// One rank's part.
    fn sum<T: Summand>(&self, communicator: &Communicator, say: Say<'_, (usize, u64)>) -> Result<(), Failure> {
        let rank = communicator.rank();
        let stream = Stream::new(communicator.device())?;
        let buffer: SymmetricBuffer<T> = communicator.symmetric(self.header.elems())?;
        let values = self.format.read::<T>(&self.inputs[rank], &self.header)?;
        buffer.write(&values, &stream)?;
        communicator.all_reduce_with(self.algorithm, &buffer, &buffer, &stream)?;
        communicator.synchronize(&stream)?;
        let sum = buffer.read(&stream)?;
        if rank == 0 {
            self.format.write(&self.unfinished, &self.header, &sum)?;
        }
        say((rank, checksum(&sum)))
    }
}
