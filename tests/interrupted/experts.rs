//! A rank that dies while experts work. The survivors learn who it was, open the experts again without that rank, and go on. And a rank
//! that is stopped: when it goes on, it writes into nothing of the others.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symmetra::experts::{Combine, ExpertConfig, Experts, Layout, Method, Placement, Received, Routing, Survivors};
use symmetra::{DeviceBuffer, Dtype, Error, Operand, Queue, Result, Stream, SymmetricBuffer};

use crate::support::data::mix;
use crate::support::process::{Child, Ranks, Said, this, within_a_second};
use crate::support::world::{bounded, open_on};
use crate::support::{Rank, fits};
use crate::{LIMIT, VICTIM, WORLD, direct};

const TOKENS: usize = 9;
const TOP_K: usize = 2;
const EXPERTS: usize = 7;
const HIDDEN: usize = 40;

/// How ranks call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Whole,
    /// Each dispatch and combine in two calls.
    Halves,
    /// By launches of one graph.
    Graph,
    /// By rank, from and to symmetric memory, which peers write and read.
    Symmetric,
    /// Experts move before each call.
    Placed,
    /// The host learns how many rows will come, and then rows are sent.
    Planned,
}

/// The operands of a layer of experts.
struct Layer {
    experts: Experts,
    ids: DeviceBuffer<i32>,
    weights: DeviceBuffer<f32>,
    rows: DeviceBuffer<f32>,
    received: DeviceBuffer<f32>,
    /// For rows in place of `received`.
    symmetric: Option<SymmetricBuffer<f32>>,
    output: DeviceBuffer<f32>,
}

impl Layer {
    fn new(experts: Experts, rank: usize, (seed, way): (u64, Way), stream: &Stream) -> Result<Self> {
        let drawn = |index: usize| mix(seed ^ mix((rank * 1000 + index) as u64));
        let symmetric = way == Way::Symmetric;
        // By rank a token of one rank is its own sum, so both its experts are the same.
        let each = if symmetric { TOP_K } else { 1 };
        let id = |pair: usize| (drawn(pair / each) % EXPERTS as u64) as i32;
        let ids: Vec<i32> = (0..TOKENS * TOP_K).map(id).collect();
        let room = experts.capacity() * HIDDEN;
        let rows: Vec<f32> = (0..TOKENS * HIDDEN).map(|index| (drawn(index) >> 44) as f32).collect();
        let device = stream.device();
        Ok(Self {
            ids: DeviceBuffer::from_slice(&ids, stream)?,
            // Weights of 1/2, so that the sum of a token is the token itself if experts return their inputs.
            weights: DeviceBuffer::from_slice(&[0.5; TOKENS * TOP_K], stream)?,
            rows: DeviceBuffer::from_slice(&rows, stream)?,
            received: DeviceBuffer::new(device, room)?,
            symmetric: symmetric.then(|| experts.communicator().symmetric(room)).transpose()?,
            output: DeviceBuffer::new(device, TOKENS * HIDDEN)?,
            experts,
        })
    }

    /// A dispatch and a combine, eager or in a capture.
    fn whole<'op, 'h>(
        &'op self,
        received: impl Operand<'op, f32> + Clone,
        queue: impl Queue<'op> + Copy + 'h,
    ) -> Result<()>
    where
        'op: 'h,
    {
        let routing = Routing::new(&self.ids).weights(&self.weights);
        let routed = self.experts.dispatch(&routing, &self.rows, &Received::rows(received.clone()), queue)?;
        routed.combine(received, &self.output, Combine::default(), queue)
    }

    /// A dispatch and a combine.
    fn call(&self, way: Way, stream: &Stream) -> Result<()> {
        if let Some(symmetric) = &self.symmetric {
            return self.whole(symmetric, stream);
        }
        if !matches!(way, Way::Halves | Way::Planned) {
            return self.whole(&self.received, stream);
        }
        let routing = Routing::new(&self.ids).weights(&self.weights);
        let into = Received::rows(&self.received);
        if way == Way::Planned {
            let routed = self.experts.plan(&routing, stream)?;
            assert!(routed.counts()?.iter().sum::<usize>() <= self.experts.capacity());
            routed.dispatch(&self.rows, &into, stream)?;
            return routed.combine(&self.received, &self.output, Combine::default(), stream);
        }
        let routed = self.experts.dispatch_begin(&routing, &self.rows, stream)?.receive(&into, stream)?;
        let returning = routed.combine_begin(&self.received, stream)?;
        returning.receive(&self.output, Combine::default(), stream)
    }
}

fn config(method: Method, way: Way) -> ExpertConfig {
    let mut config = ExpertConfig::new(EXPERTS, TOP_K, HIDDEN, TOKENS);
    config.dtype = Dtype::F32;
    config.method = method;
    config.layout = if way == Way::Symmetric { Layout::ByRank } else { Layout::ByExpert { align: 1 } };
    config
}

/// Makes calls until one fails; reports to the test that the first has worked.
fn until_error(layer: &Layer, way: Way, child: &Child, stream: &Stream) -> Error {
    layer.call(way, stream).unwrap();
    layer.experts.synchronize(stream).unwrap();
    assert_eq!(layer.output.read(stream).unwrap(), layer.rows.read(stream).unwrap());
    let graph = (way == Way::Graph).then(|| stream.capture(|capture| layer.whole(&layer.received, capture)).unwrap());
    graph.iter().for_each(|graph| graph.register().unwrap());
    child.say("ready");
    let places = [Placement::Table(vec![vec![3, 2], vec![1, 0], vec![6, 5, 4]]), Placement::Blocks];
    for place in places.iter().cycle() {
        let called = match &graph {
            Some(graph) => graph.launch(stream),
            None if way == Way::Placed => layer.experts.place(place, stream).and_then(|()| layer.call(way, stream)),
            None => layer.call(way, stream),
        };
        if let Err(error) = called.and_then(|()| layer.experts.synchronize(stream)) {
            return error;
        }
    }
    unreachable!("calls have no end")
}

/// A rank of a test with a killed rank.
fn mortal(method: Method, way: Way, child: &Child) {
    // Death is noticed, not waited for.
    let rank = child.open(&direct(Duration::from_secs(60)));
    let Rank { communicator, stream, .. } = &rank;
    let layer = Layer::new(communicator.experts(config(method, way)).unwrap(), child.rank, (1, way), stream).unwrap();
    let error = until_error(&layer, way, child, stream);
    child.say(&error.to_string());
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error:?}");
    if way == Way::Placed {
        // Each survivor may have learned of the last placement or not, so none goes on from there.
        child.say("1");
        child.say("0");
        child.hear();
        return;
    }

    let refused = layer.experts.without(&[VICTIM, child.rank]).unwrap_err();
    assert!(refused.to_string().contains(&format!("another rank than the calling rank {}", child.rank)), "{refused}");
    let start = Instant::now();
    let Survivors { experts, lost, ended, .. } = layer.experts.without(&[VICTIM]).unwrap();
    let took = start.elapsed();
    assert_eq!(lost, [VICTIM]);
    child.say(&ended.to_string());
    // Blocks of 7 experts on 3 ranks: 0 and 1, 2 and 3, 4 to 6.
    let local = if child.rank == 0 { vec![0, 1, 2, 3] } else { vec![4, 5, 6] };
    assert_eq!(experts.local_experts(), local);
    let again = Layer::new(experts, child.rank, (2, way), stream).unwrap();
    for _ in 0..3 {
        again.call(way, stream).unwrap();
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

/// One rank is killed while experts work. Gives the longest that a survivor took to learn of the death, or to open the
/// experts without the lost rank.
fn death(test: &str) -> Duration {
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, "");
    let survivors = [0, 2];
    ranks.expect(&[0, 1, 2], "ready");
    std::thread::sleep(Duration::from_millis(30));
    let death = Instant::now();
    ranks.signal(VICTIM, Signal::KILL);
    let learned = survivors.map(|rank| {
        let Said { words, at } = ranks.hear(rank);
        assert!(words.starts_with(&format!("rank {VICTIM} is gone")), "{words}");
        at.duration_since(death)
    });
    // The first call has ended on all ranks, and the survivors agree on the last.
    let ended: [u64; 2] = survivors.map(|rank| ranks.hear(rank).words.parse().unwrap());
    assert!(ended[0] >= 1 && ended[0] == ended[1], "{ended:?}");
    let without = survivors.map(|rank| Duration::from_millis(ranks.hear(rank).words.parse().unwrap()));
    eprintln!("{test}: learned after {learned:?}, without the lost rank after {without:?}");
    ranks.tell(&survivors, "done");
    ranks.finish(&survivors);
    learned.into_iter().chain(without).max().unwrap()
}

/// One rank is killed while experts work, and the survivors go on in under a second.
fn killed(test: &str) {
    within_a_second(test, || death(test));
}

/// How many ranks there are where two die.
const MORE: usize = 4;

/// A rank of a test with two killed ranks.
fn mortals(method: Method, way: Way, child: &Child) {
    let rank = child.open(&direct(Duration::from_secs(60)));
    let Rank { communicator, stream, .. } = &rank;
    let layer = Layer::new(communicator.experts(config(method, way)).unwrap(), child.rank, (1, way), stream).unwrap();
    let error = until_error(&layer, way, child, stream);
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error:?}");
    child.say("learned");
    // To meet; the second victim waits for its end.
    child.hear();
    child.say("meeting");
    let start = Instant::now();
    let Survivors { experts, lost, ended, .. } = layer.experts.without(&[VICTIM]).unwrap();
    let took = start.elapsed();
    let second: usize = child.part.parse().unwrap();
    assert_eq!(lost, [VICTIM.min(second), VICTIM.max(second)]);
    assert!(took < Duration::from_secs(20), "{took:?}, where meeting may take {:?}", direct(took).deadlines.open);
    let again = Layer::new(experts, child.rank, (2, way), stream).unwrap();
    again.call(way, stream).unwrap();
    again.experts.synchronize(stream).unwrap();
    assert_eq!(again.output.read(stream).unwrap(), again.rows.read(stream).unwrap());
    let communicator = again.experts.communicator().clone();
    assert_eq!(communicator.world_size(), MORE - 2);
    drop(again);
    communicator.close().unwrap();
    child.say(&ended.to_string());
    child.hear();
}

/// One rank is killed while experts work, and another when a survivor waits for it: the rank where all would meet, or another.
fn killed_twice(test: &str) {
    if !fits(MORE) {
        return;
    }
    let _alone = crate::support::world::alone();
    for second in [0, 2] {
        let mut ranks = Ranks::start(test, MORE, &second.to_string());
        ranks.expect(&[0, 1, 2, 3], "ready");
        std::thread::sleep(Duration::from_millis(30));
        ranks.signal(VICTIM, Signal::KILL);
        ranks.expect(&[0, 2, 3], "learned");
        let survivors = if second == 0 { [2, 3] } else { [0, 3] };
        ranks.tell(&survivors[..1], "meet");
        ranks.expect(&survivors[..1], "meeting");
        std::thread::sleep(Duration::from_millis(100));
        ranks.signal(second, Signal::KILL);
        ranks.tell(&survivors[1..], "meet");
        ranks.expect(&survivors[1..], "meeting");
        let ended: [u64; 2] = survivors.map(|rank| ranks.hear(rank).words.parse().unwrap());
        assert!(ended[0] >= 1 && ended[0] == ended[1], "{ended:?}");
        ranks.tell(&survivors, "done");
        ranks.finish(&survivors);
    }
}

/// A rank of a test with a stopped rank.
fn sleeper(method: Method, way: Way, child: &Child) {
    // Long enough for calls without end on a busy machine.
    let rank = child.open(&direct(Duration::from_secs(1)));
    let Rank { communicator, stream, .. } = &rank;
    let layer = Layer::new(communicator.experts(config(method, way)).unwrap(), child.rank, (1, way), stream).unwrap();
    let error = until_error(&layer, way, child, stream);
    let later = [&layer.received, &layer.output].map(|buffer| (buffer, vec![78.0; buffer.len()]));
    if child.rank != VICTIM {
        later.iter().for_each(|(buffer, values)| buffer.write(values, stream).unwrap());
    }
    child.say(&error.to_string());
    child.hear();
    if child.rank != VICTIM {
        later.iter().for_each(|(buffer, values)| assert_eq!(&buffer.read(stream).unwrap(), values));
    }
    drop(layer);
    let bootstrap = child.meet("again", child.rank, WORLD).unwrap();
    let again = open_on(&rank.device, bootstrap, &direct(Duration::from_secs(60))).unwrap();
    let experts = again.communicator.experts(config(method, way)).unwrap();
    let layer = Layer::new(experts, child.rank, (2, way), &again.stream).unwrap();
    layer.call(way, &again.stream).unwrap();
    again.finish();
    assert_eq!(layer.output.read(&again.stream).unwrap(), layer.rows.read(&again.stream).unwrap());
    drop(layer);
    again.communicator.close().unwrap();
    child.say("works");
}

/// One rank is stopped while experts work, past the deadline, and goes on after the others got the error.
fn stopped(test: &str) {
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, "");
    ranks.expect(&[0, 1, 2], "ready");
    std::thread::sleep(Duration::from_millis(30));
    ranks.signal(VICTIM, Signal::STOP);
    ranks.wait_stopped(VICTIM);
    for rank in [0, 2] {
        let Said { words, .. } = ranks.hear(rank);
        assert!(words.contains("timed out") && words.contains(&format!("waiting for rank {VICTIM}")), "{words}");
    }
    ranks.signal(VICTIM, Signal::CONT);
    let Said { words, .. } = ranks.hear(VICTIM);
    assert!(words.starts_with("the group was aborted"), "{words}");
    ranks.tell(&[0, 1, 2], "look");
    ranks.expect(&[0, 1, 2], "works");
    ranks.finish(&[0, 1, 2]);
}

macro_rules! by_processes {
    ($($name:ident: $method:expr, $way:expr, $child:ident, $parent:ident;)*) => {$(
        #[test]
        fn $name() {
            match this() {
                Some(child) => bounded(LIMIT, || $child($method, $way, &child)),
                None if fits(WORLD) => $parent(concat!("experts::", stringify!($name))),
                None => {}
            }
        }
    )*};
}

by_processes! {
    pitfall_01_killed_while_experts_work_by_packets: Method::Packets, Way::Whole, mortal, killed;
    pitfall_01_killed_while_experts_work_in_halves: Method::Packets, Way::Halves, mortal, killed;
    pitfall_01_killed_while_experts_work_directly: Method::Direct, Way::Whole, mortal, killed;
    pitfall_01_killed_while_experts_gather: Method::Gather, Way::Whole, mortal, killed;
    pitfall_01_killed_while_experts_work_in_place: Method::Direct, Way::Symmetric, mortal, killed;
    pitfall_01_killed_in_replays_by_packets: Method::Packets, Way::Graph, mortal, killed;
    pitfall_01_killed_in_replays_of_direct_access: Method::Direct, Way::Graph, mortal, killed;
    pitfall_01_killed_while_experts_move: Method::Direct, Way::Placed, mortal, killed;
    pitfall_01_killed_while_experts_plan: Method::Direct, Way::Planned, mortal, killed;
    pitfall_01_killed_before_the_survivors_meet: Method::Auto, Way::Whole, mortals, killed_twice;
    pitfall_02_a_rank_is_stopped_while_experts_work_by_packets: Method::Packets, Way::Whole, sleeper, stopped;
    pitfall_02_a_rank_is_stopped_while_experts_work_in_halves: Method::Packets, Way::Halves, sleeper, stopped;
    pitfall_02_a_rank_is_stopped_while_experts_work_directly: Method::Direct, Way::Whole, sleeper, stopped;
    pitfall_02_a_rank_is_stopped_while_experts_plan: Method::Direct, Way::Planned, sleeper, stopped;
}
