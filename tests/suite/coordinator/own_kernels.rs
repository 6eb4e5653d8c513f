//! The forms of calls that own kernels alone have, on a parallel group.

use symmetra::environment::{Backend, Environment};
use symmetra::{DeviceBuffer, Error, Reduction, Stream};

use super::config;
use crate::support::world::meet;

#[test]
fn a_group_has_every_form_that_its_communicator_has() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let tp = environment.tp();
        let (rank, stream) = (tp.rank() as i64, Stream::new(tp.device()).unwrap());
        let buffer = |values: &[i64]| DeviceBuffer::from_slice(values, &stream).unwrap();
        let (own, both) = (buffer(&[10 * rank + 1, 10 * rank + 2]), buffer(&[0; 4]));
        tp.reserve_workspace(1 << 10).unwrap();
        tp.low_contention_all_gather(&own, &both, &stream).unwrap().wait(&stream).unwrap();
        tp.synchronize(&stream).unwrap();
        assert_eq!(both.read(&stream).unwrap(), [1, 2, 11, 12]);
        let part = buffer(&[0; 2]);
        let pending = tp.low_contention_reduce_scatter(&both, &part, Reduction::Sum, &stream).unwrap();
        pending.wait(&stream).unwrap();
        drop(pending);
        tp.synchronize(&stream).unwrap();
        assert_eq!(part.read(&stream).unwrap(), if rank == 0 { [2, 4] } else { [22, 24] });
        let bound = tp.bind_all_reduce(&own, &part).unwrap();
        bound.enqueue(&stream).unwrap();
        tp.synchronize(&stream).unwrap();
        assert_eq!(part.read(&stream).unwrap(), [12, 14]);
        drop(bound);
        tp.reduce_in_place(&own, Reduction::Max, 1, &stream).unwrap();
        tp.synchronize(&stream).unwrap();
        assert_eq!(own.read(&stream).unwrap(), if rank == 0 { [1, 2] } else { [11, 12] });
        // Another backend serves none of these calls, and returns an error at once.
        let quantised = tp.through(Backend::Quantised).unwrap();
        let refused = [
            quantised.low_contention_all_gather(&own, &both, &stream).map(drop).unwrap_err(),
            quantised.bind_all_reduce(&own, &part).map(drop).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(&error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains("quantised is forced"), "{error}");
        }
        environment.close().unwrap();
    });
}
