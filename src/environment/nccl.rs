//! NCCL as a backend of groups (feature `nccl`).

#[cfg(feature = "nccl")]
mod ranks;

#[cfg(feature = "nccl")]
pub(super) use ranks::Ranks;

/// NCCL of a build without it.
#[cfg(not(feature = "nccl"))]
pub(super) enum Ranks {}

#[cfg(not(feature = "nccl"))]
impl Ranks {
    pub(super) fn available(_device: &crate::device::Device) -> Result<(), String> {
        Err("it was not built: build with the feature `nccl`".to_owned())
    }

    pub(super) fn open(_serving: &super::serving::Serving) -> crate::Result<Self> {
        Err(crate::Error::unsupported("NCCL", "it was not built"))
    }

    pub(super) fn run(
        &self,
        _dtype: crate::types::Dtype,
        _call: &super::call::Call<'_>,
        _queue: &impl crate::stream::Enqueue,
    ) -> crate::Result<()> {
        match *self {}
    }

    pub(super) fn check(&self) -> crate::Result<()> {
        match *self {}
    }

    pub(super) fn synchronize(
        &self,
        _stream: &crate::stream::Stream,
        _deadlines: crate::group::Deadlines,
        _well: impl Fn() -> crate::Result<()>,
        _late: impl FnOnce(crate::error::Operation, std::time::Duration) -> crate::Error,
    ) -> crate::Result<()> {
        match *self {}
    }

    pub(super) fn abort(&self) {
        match *self {}
    }

    pub(super) fn close(
        &self,
        _limit: std::time::Duration,
        _well: impl Fn() -> crate::Result<()>,
        _late: impl FnOnce(crate::error::Operation, std::time::Duration) -> crate::Error,
        _exchange: impl Fn(&[u8]) -> crate::Result<Vec<Vec<u8>>>,
    ) -> crate::Result<()> {
        match *self {}
    }
}
