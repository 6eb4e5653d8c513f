//! Settings of groups that need less memory than a tensor parallel group.

use std::borrow::Cow;

use super::Config;

impl Config {
    /// Settings of a communicator for the all-reduces of one purpose, such as a custom all-reduce of an engine: at most
    /// 16 MiB for 8 ranks, of which 2 MiB are heap.
    ///
    /// The limits of one launch are lower, so longer messages in memory that peers cannot address take more launches.
    /// Messages in symmetric, adopted or registered memory from about 100 KiB on need no scratch and are not slower.
    pub fn small() -> Self {
        Self {
            heap_bytes: 2 << 20,
            one_shot_sentinel_bytes: Some(128 << 10),
            pair_bytes: 64 << 10,
            ..Self::default().sparing()
        }
    }

    /// These settings for a group other than the tensor parallel group, which has few all-reduces of long messages.
    /// Scratch limits with their default value are lowered. Values that the program has set are kept.
    pub(crate) fn sparing(&self) -> Self {
        let (mut sparing, usual) = (self.clone(), Self::default());
        let limits = [
            (&mut sparing.one_shot_ll_bytes, usual.one_shot_ll_bytes, 64 << 10),
            (&mut sparing.two_shot_ll_bytes, usual.two_shot_ll_bytes, 256 << 10),
            (&mut sparing.two_shot_sentinel_bytes, usual.two_shot_sentinel_bytes, 512 << 10),
            (&mut sparing.ring_bytes, usual.ring_bytes, 1 << 20),
            (&mut sparing.recursive_doubling_bytes, usual.recursive_doubling_bytes, 16 << 10),
        ];
        for (limit, usual, lower) in limits {
            if *limit == usual {
                *limit = lower;
            }
        }
        sparing.one_shot_sentinel_bytes.get_or_insert(256 << 10);
        sparing
    }

    /// These settings as a group of `world_size` ranks uses them: a single rank exchanges nothing, so it has the least
    /// scratch.
    pub(crate) fn of_world(&self, world_size: usize) -> Cow<'_, Self> {
        if world_size != 1 {
            return Cow::Borrowed(self);
        }
        const LEAST: u64 = 1024;
        Cow::Owned(Self {
            one_shot_ll_bytes: LEAST,
            one_shot_sentinel_bytes: Some(LEAST),
            two_shot_ll_bytes: LEAST,
            two_shot_sentinel_bytes: LEAST,
            ring_bytes: 4096,
            recursive_doubling_bytes: LEAST,
            pair_bytes: 4096,
            ..self.clone()
        })
    }
}
