//! A rank that dies while experts work. The survivors learn who it was, open the experts again without that rank, and go on.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symmetra::experts::{Combine, ExpertConfig, Experts, Layout, Method, Received, Routing};
use symmetra::{DeviceBuffer, Dtype, Error, Result, Stream};

use crate::support::data::mix;
use crate::support::process::{Child, Ranks, Said, this};
use crate::support::world::bounded;
use crate::support::{Rank, fits};
use crate::{LIMIT, VICTIM, WORLD, direct};

const TOKENS: usize = 9;
const TOP_K: usize = 2;
const EXPERTS: usize = 7;
const HIDDEN: usize = 40;

/// What a layer of experts reads and writes.
struct Layer {
    experts: Experts,
    ids: DeviceBuffer<i32>,
    weights: DeviceBuffer<f32>,
    rows: DeviceBuffer<f32>,
    received: DeviceBuffer<f32>,
    output: DeviceBuffer<f32>,
}

impl Layer {
    fn new(experts: Experts, rank: usize, seed: u64, stream: &Stream) -> Result<Self> {
        let drawn = |index: usize| mix(seed ^ mix((rank * 1000 + index) as u64));
        let ids: Vec<i32> = (0..TOKENS * TOP_K).map(|pair| (drawn(pair) % EXPERTS as u64) as i32).collect();
        let rows: Vec<f32> = (0..TOKENS * HIDDEN).map(|index| (drawn(index) >> 44) as f32).collect();
        let device = stream.device();
        Ok(Self {
            ids: DeviceBuffer::from_slice(&ids, stream)?,
            // Halves, so that a token of experts that give back what they get is its own sum.
            weights: DeviceBuffer::from_slice(&[0.5; TOKENS * TOP_K], stream)?,
            rows: DeviceBuffer::from_slice(&rows, stream)?,
            received: DeviceBuffer::new(device, experts.capacity() * HIDDEN)?,
            output: DeviceBuffer::new(device, TOKENS * HIDDEN)?,
            experts,
        })
    }

    /// A dispatch and a combine. `halves`: each in two calls.
    fn call(&self, halves: bool, stream: &Stream) -> Result<()> {
        let routing = Routing::new(&self.ids).weights(&self.weights);
        let into = Received::rows(&self.received);
        if !halves {
            let routed = self.experts.dispatch(&routing, &self.rows, &into, stream)?;
            return routed.combine(&self.received, &self.output, Combine::default(), stream);
        }
        let routed = self.experts.dispatch_begin(&routing, &self.rows, stream)?.receive(&into, stream)?;
        let returning = routed.combine_begin(&self.received, stream)?;
        returning.receive(&self.output, Combine::default(), stream)
    }
}

fn config(method: Method) -> ExpertConfig {
    let mut config = ExpertConfig::new(EXPERTS, TOP_K, HIDDEN, TOKENS);
    config.dtype = Dtype::F32;
    config.method = method;
    config.layout = Layout::ByExpert { align: 1 };
    config
}

/// A rank of a test with a killed rank.
fn mortal(method: Method, halves: bool, child: &Child) {
    // Death is noticed, not waited for.
    let rank = child.open(&direct(Duration::from_secs(60)));
    let Rank { communicator, stream, .. } = &rank;
    let layer = Layer::new(communicator.experts(config(method)).unwrap(), child.rank, 1, stream).unwrap();
    layer.call(halves, stream).unwrap();
    communicator.synchronize(stream).unwrap();
    assert_eq!(layer.output.read(stream).unwrap(), layer.rows.read(stream).unwrap());
    child.say("ready");
    let error = loop {
        if let Err(error) = layer.call(halves, stream).and_then(|()| communicator.synchronize(stream)) {
            break error;
        }
    };
    child.say(&error.to_string());
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error:?}");

    let refused = layer.experts.without(&[VICTIM, child.rank]).unwrap_err();
    assert!(refused.to_string().contains(&format!("another rank than the calling rank {}", child.rank)), "{refused}");
    let start = Instant::now();
    let experts = layer.experts.without(&[VICTIM]).unwrap();
    let took = start.elapsed();
    // Blocks of 7 experts on 3 ranks: 0 and 1, 2 and 3, 4 to 6.
    let local = if child.rank == 0 { vec![0, 1, 2, 3] } else { vec![4, 5, 6] };
    assert_eq!(experts.local_experts(), local);
    let again = Layer::new(experts, child.rank, 2, stream).unwrap();
    for _ in 0..3 {
        again.call(halves, stream).unwrap();
    }
    again.experts.synchronize(stream).unwrap();
    assert_eq!(again.output.read(stream).unwrap(), again.rows.read(stream).unwrap());
    let communicator = again.experts.communicator().clone();
    drop(again);
    communicator.close().unwrap();
    child.say(&format!("{}", took.as_millis()));
    // The other survivor is done.
    child.hear();
}

/// One rank is killed while experts work.
fn killed(test: &str) {
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, "");
    let survivors = [0, 2];
    ranks.expect(&[0, 1, 2], "ready");
    std::thread::sleep(Duration::from_millis(30));
    let death = Instant::now();
    ranks.signal(VICTIM, Signal::KILL);
    for rank in survivors {
        let Said { words, at } = ranks.hear(rank);
        assert!(words.starts_with(&format!("rank {VICTIM} is gone")), "{words}");
        let took = at.duration_since(death);
        assert!(took < Duration::from_secs(1), "learned after {took:?}");
    }
    for rank in survivors {
        let took_ms: u64 = ranks.hear(rank).words.parse().unwrap();
        assert!(took_ms < 1000, "rank {rank} was without the lost one after {took_ms} ms");
    }
    ranks.tell(&survivors, "done");
    ranks.finish(&survivors);
}

macro_rules! killed {
    ($($name:ident: $method:expr, $halves:expr;)*) => {$(
        #[test]
        fn $name() {
            match this() {
                Some(child) => bounded(LIMIT, || mortal($method, $halves, &child)),
                None if fits(WORLD) => killed(concat!("experts::", stringify!($name))),
                None => {}
            }
        }
    )*};
}

killed! {
    pitfall_01_killed_while_experts_work_by_packets: Method::Packets, false;
    pitfall_01_killed_while_experts_work_in_halves: Method::Packets, true;
    pitfall_01_killed_while_experts_work_directly: Method::Direct, false;
    pitfall_01_killed_while_experts_gather: Method::Gather, false;
}
