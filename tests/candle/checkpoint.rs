//! Checkpoints in temporary folders.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::var_builder::{ShardedSafeTensors, ShardedVarBuilder};
use candle_transformers::models::llama::{Config, LlamaConfig};
use tempfile::TempDir;

use crate::random::{ModelSize, write};

/// A random Llama.
pub(crate) struct Checkpoint {
    pub(crate) folder: TempDir,
    pub(crate) config: Config,
}

impl Checkpoint {
    pub(crate) fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = ModelSize::Tiny.config();
        write(folder.path(), &config, DType::F32, seed).unwrap();
        let config: LlamaConfig = serde_json::from_value(config).unwrap();
        Self { folder, config: config.into_config(false) }
    }

    /// A copy of the checkpoint with every matrix of a layer shifted by one row.
    pub(crate) fn shifted(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files(self.folder.path()) {
            let mut tensors = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
            for tensor in tensors.values_mut().filter(|tensor| tensor.rank() == 2) {
                *tensor = tensor.roll(1, 0).unwrap();
            }
            candle_core::safetensors::save(&tensors, folder.path().join(file.file_name().unwrap())).unwrap();
        }
        folder
    }
}

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors")).collect()
}

#[allow(unsafe_code)]
pub(crate) fn weights(folder: &Path, dtype: DType, device: &Device) -> Result<ShardedVarBuilder<'static>> {
    // SAFETY: no test changes the files.
    unsafe { ShardedSafeTensors::var_builder(&files(folder), dtype, device) }
}

/// A folder with one file of these tensors.
pub(crate) fn saved(tensors: &[(&str, &Tensor)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tensors: HashMap<_, _> = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), (*tensor).clone())).collect();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}
