//! Tensors in files.

mod npy;
mod safetensors;
mod shown;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_setfl};
use serde::{Deserialize, Serialize};
use shown::shown;
use symmetra::{Dtype, Element};

use crate::failure::CommandFailure;
use crate::names::by_name;

/// The format of a file of tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FileFormat {
    /// One NumPy array.
    Npy,
    /// Tensors with names: the tensor of this name, or all.
    Safetensors { tensor: Option<String> },
}

/// The description of a tensor without its elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTensor {
    /// Empty where the format has no names.
    name: String,
    #[serde(with = "by_name")]
    pub dtype: Dtype,
    shape: Vec<u64>,
    /// Whether the first index varies fastest. A sum is the same in either order.
    fortran: bool,
}

/// The contents of a file without the elements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileHeader {
    /// Tensors in the order in which a file is written: see `FileTensor::in_order`.
    pub tensors: Vec<FileTensor>,
    /// The other texts of the file, by name, if the format has them.
    texts: Option<BTreeMap<String, String>>,
}

/// A header and where the elements are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileLayout {
    header: FileHeader,
    /// Where the file was left.
    position: u64,
    /// Where the elements of each tensor begin.
    starts: Vec<u64>,
}

/// The elements of a pipe whose header is read, for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rest {
    /// The path of the open end of this process.
    path: PathBuf,
    /// The name of the pipe for users.
    name: PathBuf,
    layout: FileLayout,
}

/// An open file of tensors.
pub struct FileSource {
    path: PathBuf,
    file: File,
    layout: FileLayout,
}

/// A file of tensors that is being written.
pub struct FileSink {
    path: PathBuf,
    file: File,
}

impl FileFormat {
    /// The format that a path's extension names.
    pub fn of(path: &Path, tensor: Option<&str>) -> Result<Self, CommandFailure> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        match (extension.as_deref(), tensor) {
            (Some("npy"), None) => Ok(Self::Npy),
            (Some("npy"), Some(_)) => {
                Err(CommandFailure::usage("--tensor names a tensor of .safetensors files; a .npy file has only one"))
            }
            (Some("safetensors"), tensor) => Ok(Self::Safetensors { tensor: tensor.map(str::to_owned) }),
            _ => Err(CommandFailure::usage(format!(
                "`{}` is of no known format: it must end in .npy or .safetensors",
                path.display()
            ))),
        }
    }

    pub fn extension(&self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Safetensors { .. } => "safetensors",
        }
    }

    /// Whether a path has the extension of this format.
    pub fn fits(&self, path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == self.extension())
    }

    /// Opens a file and reads its header. Errors name the file.
    pub fn open(&self, path: &Path) -> Result<FileSource, CommandFailure> {
        let mut file = File::open(path).map_err(CommandFailure::doing(format!("open {}", path.display())))?;
        let layout = match self {
            Self::Npy => npy::layout(&mut file),
            Self::Safetensors { tensor } => safetensors::layout(&mut file, tensor.as_deref()),
        };
        let layout = layout.and_then(|layout| layout.check_length(&file).map(|()| layout));
        let layout = layout.map_err(|message| CommandFailure::failed(format!("{}: {message}", path.display())))?;
        Ok(FileSource { path: path.to_owned(), file, layout })
    }

    /// Opens a pipe whose header another process has read and whose end it holds open.
    pub fn resume(rest: &Rest) -> Result<FileSource, CommandFailure> {
        let Rest { path, name, layout } = rest;
        let doing = format!("open {}", name.display());
        // A writer that has written all may be gone: opening would wait for another.
        let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
        let file = opened.map_err(CommandFailure::doing(&doing))?;
        fcntl_setfl(&file, OFlags::empty()).map_err(CommandFailure::doing(&doing))?;
        Ok(FileSource { path: name.clone(), file, layout: layout.clone() })
    }

    /// Begins to write into an empty file that is there.
    pub fn begin(&self, path: &Path, header: &FileHeader) -> Result<FileSink, CommandFailure> {
        let opened = OpenOptions::new().write(true).open(path);
        let mut file = opened.map_err(CommandFailure::doing(format!("write {}", path.display())))?;
        let begun = match self {
            Self::Npy => npy::begin(&mut file, header),
            Self::Safetensors { .. } => safetensors::begin(&mut file, header),
        };
        begun.map_err(|message| CommandFailure::failed(format!("cannot write {}: {message}", path.display())))?;
        Ok(FileSink { path: path.to_owned(), file })
    }
}

impl FileLayout {
    /// Compares the length of a file with its header. A pipe has no length.
    fn check_length(&self, file: &File) -> Result<(), String> {
        let there = file.metadata().map_err(|error| error.to_string())?;
        for (tensor, start) in self.header.tensors.iter().zip(&self.starts) {
            let end = start.saturating_add(tensor.bytes());
            if there.is_file() && end > there.len() {
                let bytes = there.len();
                return Err(format!("{tensor} would end at byte {end}, but the file has {bytes} bytes"));
            }
        }
        Ok(())
    }
}

/// How much memory is taken before bytes for it have come.
const PIECE_BYTES: usize = 16 << 20;

impl FileSource {
    pub fn header(&self) -> &FileHeader {
        &self.layout.header
    }

    /// The unread rest, if this is a pipe, which cannot be opened again from its start. This source holds the pipe
    /// open until another process has it.
    pub fn rest(&self) -> Option<Rest> {
        let is_pipe = self.file.metadata().is_ok_and(|there| !there.is_file());
        is_pipe.then(|| Rest {
            path: format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into(),
            name: self.path.clone(),
            layout: self.layout.clone(),
        })
    }

    /// Reads the elements of the tensor of this number.
    pub fn read<T: Element>(&mut self, number: usize) -> Result<Vec<T>, CommandFailure> {
        let Self { path, file, layout } = self;
        let (Some(tensor), Some(start)) = (layout.header.tensors.get(number), layout.starts.get(number)) else {
            return Err(CommandFailure::failed(format!("{} has no tensor number {number}", path.display())));
        };
        let cannot = || format!("read {tensor} from {}", path.display());
        // A pipe is read in one order only.
        if layout.position != *start {
            file.seek(SeekFrom::Start(*start)).map_err(CommandFailure::doing(cannot()))?;
        }
        let mut values: Vec<T> = Vec::new();
        let (elems, piece) = (tensor.elems(), PIECE_BYTES / size_of::<T>());
        values
            .try_reserve_exact(elems)
            .map_err(|error| CommandFailure::failed(format!("cannot {}: {error}", cannot())))?;
        while values.len() < elems {
            let read = values.len();
            values.resize(elems.min(read + piece), T::zeroed());
            file.read_exact(bytemuck::cast_slice_mut(&mut values[read..])).map_err(CommandFailure::doing(cannot()))?;
        }
        layout.position = start.saturating_add(tensor.bytes());
        Ok(values)
    }
}

impl FileSink {
    /// Writes the elements of the next tensor.
    pub fn write<T: Element>(&mut self, values: &[T]) -> Result<(), CommandFailure> {
        let written = self.file.write_all(bytemuck::cast_slice(values));
        written.map_err(CommandFailure::doing(format!("write {}", self.path.display())))
    }
}

impl FileTensor {
    /// Refuses tensors that do not fit in memory.
    fn new(name: &str, dtype: Dtype, shape: Vec<u64>, fortran: bool) -> Result<Self, String> {
        let bytes = shape.iter().try_fold(dtype.bytes() as u64, |product, extent| product.checked_mul(*extent));
        match bytes.filter(|bytes| *bytes <= 1 << 40) {
            Some(_) => Ok(Self { name: name.to_owned(), dtype, shape, fortran }),
            None => Err(format!("{dtype} {} has more than 1 TiB", shown(&format!("{shape:?}")))),
        }
    }

    pub fn elems(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    pub fn is_fortran(&self) -> bool {
        self.fortran
    }

    pub fn bytes(&self) -> u64 {
        (self.elems() * self.dtype.bytes()) as u64
    }

    /// The order in which a file is written: wide elements first, so that all are aligned, then by name.
    fn in_order(&self, other: &Self) -> Ordering {
        (other.dtype.bytes(), &self.name).cmp(&(self.dtype.bytes(), &other.name))
    }
}

impl FileHeader {
    /// How the tensors of two files differ: the tensors of each file.
    pub fn difference(&self, other: &Self) -> Option<[String; 2]> {
        let by_name = |header: &'_ Self| -> BTreeMap<String, FileTensor> {
            header.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.clone())).collect()
        };
        let both = [by_name(self), by_name(other)];
        let name = both.iter().flat_map(BTreeMap::keys).find(|name| both[0].get(*name) != both[1].get(*name))?;
        let none = || format!("no `{}`", shown(name));
        Some(both.each_ref().map(|tensors| tensors.get(name).map_or_else(none, FileTensor::to_string)))
    }
}

impl fmt::Display for FileTensor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(out, "`{}` ", shown(&self.name))?;
        }
        write!(out, "{} {}", self.dtype, shown(&format!("{:?}", self.shape)))?;
        if self.fortran { write!(out, " in Fortran order") } else { Ok(()) }
    }
}

impl fmt::Display for FileHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tensors[..] {
            [tensor] => write!(out, "{tensor}"),
            tensors => write!(out, "{} tensors", tensors.len()),
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/tensor_file.rs"]
mod tests;
