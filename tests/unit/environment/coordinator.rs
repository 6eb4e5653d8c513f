//! Tests of `src/environment/coordinator.rs`, whose module they are.

use std::time::Duration;

use crate::bootstrap::{Bootstrap, Threads};
use crate::environment::{Backend, EnvConfig, Environment, InitMethod};
use crate::{DeviceBuffer, Error, Reduction, Stream};

/// On one rank alone: no other rank is notified, and the group goes on.
#[test]
fn a_native_capture_of_a_call_through_the_cpu_is_refused() {
    let run = |(bootstrap, spans): (Threads, bool)| {
        let host = if spans { format!("host-{}", bootstrap.rank()) } else { "host".to_owned() };
        let interface = Some("127.0.0.1".to_owned());
        let mut config = EnvConfig { host: Some(host), interface, ..EnvConfig::default() };
        config.communicator.heap_bytes = 1 << 20;
        let limit = Duration::from_secs(20);
        (config.communicator.deadlines.first_use, config.communicator.deadlines.steady) = (limit, limit);
        config.init_method = InitMethod::bootstrap(bootstrap);
        let environment = Environment::init(config).unwrap();
        let world = environment.world();
        let group = if spans { world.clone() } else { world.through(Backend::Host).unwrap() };
        let stream = Stream::new(group.device()).unwrap();
        let buffer = DeviceBuffer::from_slice(&[1 + group.rank() as i32; 8], &stream).unwrap();
        if group.rank() == 0 {
            let refused = stream.capture_natively(|| group.all_reduce_in_place(&buffer, &stream)).unwrap();
            let Err(Error::Unsupported { reason, .. }) = &refused else { panic!("{refused:?}") };
            assert!(reason.contains("host: it blocks the caller and cannot be captured"), "{reason}");
        }
        group.all_reduce_in_place(&buffer, &stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [3; 8]);
        group.reduce(&buffer, Some(&buffer), Reduction::Max, 1, &stream).unwrap();
        group.check().unwrap();
        environment.close().unwrap();
    };
    for spans in [true, false] {
        std::thread::scope(|scope| {
            let ranks = Threads::new(2).unwrap().into_iter();
            let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(move || run((bootstrap, spans)))).collect();
            ranks.into_iter().for_each(|rank| rank.join().unwrap());
        });
    }
}
