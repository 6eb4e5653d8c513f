//! NCCL as a backend of groups (feature `nccl`).

#[cfg(feature = "nccl")]
mod ranks;

#[cfg(feature = "nccl")]
pub(crate) use ranks::Ranks;

/// Replaces NCCL in a build without the feature.
#[cfg(not(feature = "nccl"))]
pub(crate) enum Ranks {}

#[cfg(not(feature = "nccl"))]
impl Ranks {
    pub(crate) fn available(_device: &crate::device::Device) -> Result<Result<(), String>, String> {
        Err("it was not built: build with the feature `nccl`".to_owned())
    }

    pub(crate) fn open(
        _group: &crate::group::Group,
        _rank: usize,
        _world_size: usize,
        _exchange: impl Fn(&[u8]) -> crate::Result<Vec<Vec<u8>>>,
    ) -> crate::Result<Self> {
        Err(crate::Error::unsupported("NCCL", "it was not built"))
    }

    pub(crate) fn run(
        &self,
        _call: &crate::op::Call<'_>,
        _shape: &crate::op::CheckedShape,
        _queue: crate::stream::Target<'_>,
    ) -> crate::Result<()> {
        match *self {}
    }

    pub(crate) fn run_pairs(
        &self,
        _messages: &[crate::op::RankMessage],
        _queue: crate::stream::Target<'_>,
    ) -> crate::Result<()> {
        match *self {}
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        match *self {}
    }

    pub(crate) fn synchronize(
        &self,
        _stream: &crate::stream::Stream,
        _deadlines: crate::group::Deadlines,
        _well: impl Fn() -> crate::Result<()>,
        _late: impl FnOnce(crate::error::Operation, std::time::Duration) -> crate::Error,
    ) -> crate::Result<()> {
        match *self {}
    }

    pub(crate) fn leave(&self, _stream: &crate::stream::Stream) -> crate::Result<()> {
        match *self {}
    }

    pub(crate) fn abort(&self) {
        match *self {}
    }

    pub(crate) fn close(
        &self,
        _limit: std::time::Duration,
        _well: impl Fn() -> crate::Result<()>,
        _late: impl FnOnce(crate::error::Operation, std::time::Duration) -> crate::Error,
        _exchange: impl Fn(&[u8]) -> crate::Result<Vec<Vec<u8>>>,
    ) -> crate::Result<()> {
        match *self {}
    }
}
