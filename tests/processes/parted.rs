//! A rank of two parallel groups is killed: the records of each group have its number in that group.

use rustix::process::Signal;
use symmetra::environment::{EnvConfig, Environment, InitMethod, Parallelism};
use symmetra::{DeviceBuffer, Error, Stream};

use super::observed::{records, start_recorded};
use crate::LIMIT;
use crate::support::device::device;
use crate::support::process::{Child, this};
use crate::support::world::{alone, bounded, until};
use crate::support::{config, is_host};

const NAME: &str = "parted::the_records_of_a_group_have_its_rank_numbers";
const WORLD: usize = 4;
const VICTIM: usize = 3;
const SURVIVORS: [usize; 3] = [0, 1, 2];

/// Rank 3 of the world is rank 1 of its tensor parallel group, ranks 2 and 3, and of its data parallel group, ranks 1 and 3.
fn rank(child: &Child) {
    let mut settings = EnvConfig::default();
    settings.device = Some(device(child.rank));
    settings.init_method = InitMethod::bootstrap(child.meet("all", child.rank, WORLD).unwrap());
    (settings.tensor_parallel_size, settings.data_parallel_size) = (2, 2);
    settings.communicator = config();
    let environment = Environment::init(settings).unwrap();
    let stream = Stream::new(environment.world().local().device()).unwrap();
    child.say("ready");
    child.hear();
    for parallelism in [Parallelism::Tensor, Parallelism::Data] {
        let group = environment.group(parallelism);
        if !group.ranks().contains(&VICTIM) {
            continue;
        }
        let values = DeviceBuffer::from_slice(&[1.0_f32; 8], &stream).unwrap();
        let failed = group.all_reduce(&values, &values, &stream).and_then(|()| group.synchronize(&stream));
        assert!(matches!(failed, Err(Error::PeerLost { rank: 1, .. })), "{failed:?}");
    }
    child.say("lost");
    child.hear();
}

#[test]
fn the_records_of_a_group_have_its_rank_numbers() {
    if let Some(child) = this() {
        return bounded(LIMIT, || rank(&child));
    }
    if !is_host() {
        return;
    }
    let _alone = alone();
    let (mut ranks, dumps) = start_recorded(&[], NAME, WORLD, "rank");
    ranks.expect(&[0, 1, 2, 3], "ready");
    ranks.signal(VICTIM, Signal::KILL);
    ranks.tell(&SURVIVORS, "go");
    ranks.expect(&SURVIVORS, "lost");
    let mut pairs = Vec::new();
    until(LIMIT / 4, "the records of both groups", || {
        pairs = records(&dumps);
        pairs.retain(|record| record.world_size == 2);
        pairs.len() == 4
    });
    for record in &pairs {
        assert_eq!((record.culprit, record.world_rank == Some(VICTIM)), (Some(1), record.rank == 1), "{record:#?}");
        assert_eq!(record.by, 0, "the survivor of the group writes both records");
    }
    ranks.tell(&SURVIVORS, "end");
    ranks.finish(&SURVIVORS);
}
