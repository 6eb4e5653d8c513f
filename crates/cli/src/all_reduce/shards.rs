//! The user's own tensors: one file a rank, summed into one file.

use harness::with_element;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Communicator, Config, MAX_WORLD_SIZE, Reduction, Stream, SymmetricBuffer,
};
use tempfile::NamedTempFile;

use super::unfinished;
use harness::failure::CommandFailure;
use harness::guarded::GUARD_BYTES;
use harness::names::by_name;
use harness::output;
use harness::ranks::{Say, Task};
use harness::signals::{Guard, guard};
use harness::target;
use harness::tensor_file::{FileFormat, FileHeader, FileSink, FileSource, Rest};
use reference::data::checksum;
use reference::element::Summand;

#[derive(clap::Args)]
#[command(next_help_heading = "Tensors in files")]
pub(super) struct FileArgs {
    /// Each rank's tensors: a .npy or .safetensors path in which {rank} stands for 0, 1, ...
    #[arg(long, value_name = "PATH", requires = "output", conflicts_with_all = SWEEP_ONLY)]
    pub(super) input: Option<String>,

    /// The file of the result, in the same format and with the metadata of rank 0's file; replaced if it exists
    #[arg(long, value_name = "PATH", requires = "input")]
    output: Option<PathBuf>,

    /// Which tensor of the .safetensors files [default: all]
    #[arg(long, value_name = "NAME", requires = "input")]
    tensor: Option<String>,
}

/// Flags that have no effect with `--input`.
const SWEEP_ONLY: [&str; 13] = [
    "dtype",
    "min_bytes",
    "max_bytes",
    "step_factor",
    "iterations",
    "warmup",
    "graph",
    "bound",
    "in_place",
    "memory",
    "plain",
    "seed",
    "json",
];

/// The placeholder of the rank in the path of the inputs.
const PLACEHOLDER: &str = "{rank}";

/// The largest number up to which files of later ranks are looked for.
const SEARCHED: usize = 1024;

/// The files of a run, with tensors of the same names, types and shapes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shards {
    format: FileFormat,
    /// One path for each rank.
    inputs: Vec<PathBuf>,
    /// The unread rest after the header, for inputs that are pipes.
    pipes: Vec<Option<Rest>>,
    /// The header of rank 0's file.
    header: FileHeader,
    #[serde(with = "by_name")]
    algorithm: Algorithm,
    #[serde(with = "by_name")]
    reduction: Reduction,
    #[serde(with = "by_name")]
    codec: Codec,
    /// The file to which rank 0 writes the result.
    unfinished: PathBuf,
}

impl Task for Shards {
    const NAME: &'static str = "shards";
    /// The rank and the checksum of its results.
    type Found = (usize, u64);

    /// Room for the largest tensor, which is reduced in place, with its signal pad and guards.
    fn heap_bytes(&self) -> u64 {
        let largest = self.header.tensors.iter().map(|tensor| tensor.bytes()).max();
        largest.unwrap_or(0) + (64 << 10)
    }

    fn configure(&self, config: &mut Config) {
        config.guard_bytes = GUARD_BYTES;
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Self::Found>) -> Result<(), CommandFailure> {
        let rank = communicator.rank();
        let source = match &self.pipes[rank] {
            Some(rest) => FileFormat::resume(rest),
            None => self.format.open(&self.inputs[rank]),
        }?;
        if let Some([was, is]) = self.header.difference(source.header()) {
            let path = self.inputs[rank].display();
            return Err(CommandFailure::failed(format!("{path}: it had {was}, and now has {is}")));
        }
        let sink = (rank == 0).then(|| self.format.begin(&self.unfinished, &self.header)).transpose()?;
        let stream = Stream::new(communicator.device())?;
        let mut part = Shard { shards: self, communicator, stream, source, sink };
        let mut checksums = Vec::new();
        for (number, tensor) in self.header.tensors.iter().enumerate() {
            checksums.push(with_element!(tensor.dtype, T => part.reduce::<T>(number))?);
        }
        say((rank, checksum(&checksums)))
    }
}

/// One rank's part.
struct Shard<'a> {
    shards: &'a Shards,
    communicator: &'a Communicator,
    stream: Stream,
    source: FileSource,
    /// The output on rank 0; `None` on other ranks.
    sink: Option<FileSink>,
}

impl Shard<'_> {
    /// Reduces the tensor of this number and returns the checksum of the result.
    fn reduce<T: Summand>(&mut self, number: usize) -> Result<u64, CommandFailure> {
        let Self { shards: Shards { algorithm, reduction, codec, .. }, communicator, stream, source, sink } = self;
        let values = source.read::<T>(number)?;
        let buffer: SymmetricBuffer<T> = communicator.symmetric(values.len())?;
        buffer.write(&values, stream)?;
        let options = AllReduceOptions::default().reduction(*reduction).algorithm(*algorithm).codec(*codec);
        communicator.all_reduce_with(options, &buffer, &buffer, &*stream)?;
        communicator.synchronize(stream)?;
        let result = buffer.read(stream)?;
        sink.as_mut().map_or(Ok(()), |sink| sink.write(&result))?;
        Ok(checksum(&result))
    }
}

/// A run whose inputs fit together, and whose output can be written.
pub(super) struct OpenedRun {
    pub(super) shards: Shards,
    output: PathBuf,
    /// Holds pipes open until the ranks have them.
    _sources: Vec<FileSource>,
    /// Holds the result until it is whole.
    unfinished: Guard<NamedTempFile>,
}

/// Checks the files before any rank is started.
pub(super) fn open(
    files: &FileArgs,
    template: &str,
    ranks: Option<u64>,
    options: AllReduceOptions,
) -> Result<OpenedRun, CommandFailure> {
    let AllReduceOptions { algorithm, reduction, codec, .. } = options;
    let output = files.output.as_deref().ok_or_else(|| CommandFailure::usage("--input needs --output"))?;
    let format = FileFormat::of(Path::new(template), files.tensor.as_deref())?;
    let inputs = inputs(template, ranks)?;
    check_output(output, &format, &inputs)?;
    let output = target::check_replaced("--output", output)?;
    let sources: Vec<FileSource> = inputs.iter().map(|input| format.open(input)).collect::<Result<_, _>>()?;
    let header = common_header(&sources, &inputs)?;
    header.tensors.iter().try_for_each(|tensor| super::check_fits(options, tensor.dtype))?;
    // In the folder of the output, so that renaming the result is atomic.
    let folder = output.parent().unwrap_or(Path::new("/"));
    let create =
        || unfinished::create(folder).map_err(CommandFailure::doing(format!("write into {}", folder.display())));
    let (unfinished, path) = guard(create, |file| file.path().to_owned())?;
    let pipes = sources.iter().map(FileSource::rest).collect();
    let shards = Shards { format, inputs, pipes, header, algorithm, reduction, codec, unfinished: path };
    Ok(OpenedRun { shards, output, _sources: sources, unfinished })
}

impl OpenedRun {
    /// Renames the result to the output if all ranks have the same result.
    pub(super) fn finish(self, mut checksums: Vec<(usize, u64)>) -> Result<(), CommandFailure> {
        checksums.sort_unstable();
        if let Some(pair) = checksums.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            let (one, other) = (pair[0].0, pair[1].0);
            return Err(CommandFailure::failed(format!(
                "ranks {one} and {other} ended with different results: nothing was written"
            )));
        }
        let finished = self.unfinished.take(|result| finish(result, &self.output));
        finished.transpose()?;
        let Shards { reduction, header, inputs, .. } = &self.shards;
        let (files, output) = (inputs.len(), self.output.display());
        output::note(format_args!("the {reduction} of {files} files, of {header} each, is in {output}"))?;
        Ok(())
    }
}

/// Renames the result to the output, with the permissions of a new file.
fn finish(result: NamedTempFile, output: &Path) -> Result<(), CommandFailure> {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let mode = Permissions::from_mode(0o666 & !mask.bits());
    let file = result.as_file();
    file.set_permissions(mode)
        .and_then(|()| file.sync_all())
        .and_then(|()| result.persist(output).map(drop).map_err(|error| error.error))
        .map_err(CommandFailure::doing(format!("write {}", output.display())))
}

/// The path of each rank: the requested number of paths, else the paths that exist.
fn inputs(template: &str, asked: Option<u64>) -> Result<Vec<PathBuf>, CommandFailure> {
    if !template.contains(PLACEHOLDER) {
        return Err(CommandFailure::usage(format!(
            "--input is `{template}`, but it must contain {PLACEHOLDER}, for which every rank puts its number"
        )));
    }
    let path = |rank: usize| PathBuf::from(template.replace(PLACEHOLDER, &rank.to_string()));
    let ranks = match asked {
        Some(ranks) => ranks as usize,
        None => (0..).take_while(|rank| path(*rank).exists()).count(),
    };
    // A tensor left out unnoticed would give a wrong sum.
    if let Some(later) = asked.map_or_else(|| (ranks + 1..SEARCHED).find(|rank| path(*rank).exists()), |_| None) {
        let (missing, later) = (path(ranks), path(later));
        return Err(CommandFailure::failed(format!(
            "there is {}, but no {}: ranks count from 0 without a gap (--ranks takes the first)",
            later.display(),
            missing.display()
        )));
    }
    match ranks {
        0 => Err(CommandFailure::failed(format!("there is no file {}: ranks count from 0", path(0).display()))),
        1..=MAX_WORLD_SIZE => Ok((0..ranks).map(path).collect()),
        _ => Err(CommandFailure::usage(format!(
            "there are {ranks} files like {}, but at most {MAX_WORLD_SIZE} ranks (--ranks takes the first)",
            path(0).display()
        ))),
    }
}

/// The output is one file, of the same format, and none of the inputs.
fn check_output(output: &Path, format: &FileFormat, inputs: &[PathBuf]) -> Result<(), CommandFailure> {
    let shown = output.display();
    if output.to_string_lossy().contains(PLACEHOLDER) {
        return Err(CommandFailure::usage(format!(
            "--output is `{shown}`, but the sum is one file: leave {PLACEHOLDER} out"
        )));
    }
    if !format.fits(output) {
        return Err(CommandFailure::usage(format!(
            "--output is `{shown}`, but it must end in .{} as --input",
            format.extension()
        )));
    }
    let Ok(canonical) = output.canonicalize() else { return Ok(()) };
    let rank = inputs.iter().position(|input| input.canonicalize().is_ok_and(|input| input == canonical));
    match rank {
        Some(rank) => {
            Err(CommandFailure::usage(format!("--output is `{shown}`, but that is the input of rank {rank}")))
        }
        None => Ok(()),
    }
}

/// The description of the tensors, which all headers must share, and the other contents of rank 0's header.
fn common_header(sources: &[FileSource], inputs: &[PathBuf]) -> Result<FileHeader, CommandFailure> {
    let mut headers = sources.iter().map(FileSource::header).enumerate();
    let Some((_, first)) = headers.next() else { return Err(CommandFailure::failed("there are no inputs")) };
    for (rank, header) in headers {
        if let Some([one, other]) = first.difference(header) {
            return Err(CommandFailure::failed(format!(
                "ranks 0 and {rank} differ: {} has {one}, but {} has {other}",
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
}
