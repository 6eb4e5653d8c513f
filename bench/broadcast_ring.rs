//! The metadata ring against a plain ZeroMQ ipc socket (PUB and SUB): round trip, throughput, processor time. Run
//! `cargo bench --bench broadcast_ring`; without libzmq it measures the ring alone.
#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::ffi::{CString, c_int, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use symmetra::bootstrap::Threads;
use symmetra_ring::{BroadcastRing, Overflow, Reader, RingConfig, Writer};

/// A sender, by the ring or by ZeroMQ.
trait Publish: Send {
    fn send(&mut self, message: &[u8]);
}

/// A receiver, by the ring or by ZeroMQ.
trait Subscribe: Send {
    /// Returns the bytes of the next message.
    fn receive(&mut self) -> usize;
}

impl Publish for Writer {
    fn send(&mut self, message: &[u8]) {
        Writer::send(self, message).unwrap();
    }
}

impl Subscribe for Reader {
    fn receive(&mut self) -> usize {
        Reader::receive(self).unwrap().len()
    }
}

type Ends = (Box<dyn Publish>, Vec<Box<dyn Subscribe>>);
/// Makes the ends for a number of readers.
type Make = fn(usize) -> Ends;

/// A ring of one writer and several readers as threads, which share memory as processes do.
fn ring(readers: usize, spin: Duration, overflow: Overflow) -> Ends {
    let threads = Threads::new(readers + 1).unwrap().into_iter().map(|mut bootstrap| {
        thread::spawn(move || {
            let mut config = RingConfig::default();
            (config.spin, config.overflow) = (spin, overflow);
            BroadcastRing::create(&mut bootstrap, config).unwrap()
        })
    });
    let mut ends = threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap());
    let writer = ends.next().unwrap().into_writer().unwrap();
    (Box::new(writer), ends.map(|end| Box::new(end.into_reader().unwrap()) as Box<dyn Subscribe>).collect())
}

/// A spinning ring, a ring that may sleep, and ZeroMQ if available.
fn ways() -> Vec<(&'static str, Make)> {
    let mut ways: Vec<(&'static str, Make)> = vec![
        ("ring, spinning", |readers| ring(readers, Duration::MAX, Overflow::Ring)),
        ("ring, adaptive", |readers| ring(readers, Duration::from_micros(50), Overflow::Ring)),
        ("ring, sleeping", |readers| ring(readers, Duration::ZERO, Overflow::Ring)),
    ];
    match zeromq::Library::load() {
        Ok(_) => ways.push(("ZeroMQ ipc", zeromq::ends)),
        Err(error) => eprintln!("no ZeroMQ: {error}"),
    }
    ways
}

/// A thread that answers every message with one of the same size.
fn echo(mut from: Box<dyn Subscribe>, mut to: Box<dyn Publish>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        loop {
            match from.receive() {
                0 => return,
                bytes => to.send(&vec![1; bytes]),
            }
        }
    })
}

fn there_and_back(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("there and back");
    for (name, ends) in ways() {
        let ((mut ping, mut far), (pong, mut near)) = (ends(1), ends(1));
        let (far, mut near) = (far.remove(0), near.remove(0));
        let echo = echo(far, pong);
        let message = vec![7; 1024];
        group.bench_function(BenchmarkId::new(name, "1 KiB"), |bencher| {
            bencher.iter(|| {
                ping.send(&message);
                near.receive()
            });
        });
        let mut times: Vec<Duration> = (0..20_000)
            .map(|_| {
                let start = Instant::now();
                ping.send(&message);
                near.receive();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let half = times[times.len() / 2].as_secs_f64() * 1e6 / 2.0;
        println!("  {name}, 1 KiB one way: median {half:.2} us");
        ping.send(&[]);
        echo.join().unwrap();
    }
    group.finish();
}

/// Readers on threads, which report when they have received the expected messages.
struct Crowd {
    expect: Vec<Sender<u64>>,
    done: Receiver<()>,
}

impl Crowd {
    fn new(readers: Vec<Box<dyn Subscribe>>) -> Self {
        let (said, done) = channel();
        let expect = readers.into_iter().map(|mut reader| {
            let (expect, expected) = channel::<u64>();
            let said = said.clone();
            thread::spawn(move || {
                for count in expected {
                    for _ in 0..count {
                        reader.receive();
                    }
                    said.send(()).unwrap();
                }
            });
            expect
        });
        Self { expect: expect.collect(), done }
    }

    fn time(&self, writer: &mut dyn Publish, message: &[u8], count: u64) -> Duration {
        self.expect.iter().for_each(|expect| expect.send(count).unwrap());
        let start = Instant::now();
        (0..count).for_each(|_| writer.send(message));
        self.expect.iter().for_each(|_| self.done.recv().unwrap());
        start.elapsed()
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn throughput(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("throughput to 2 readers");
    for (name, ends) in ways() {
        for bytes in [1 << 10, 256 << 10] {
            let (mut writer, readers) = ends(2);
            let crowd = Crowd::new(readers);
            let message = vec![7; bytes];
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::new(name, format!("{} KiB", bytes >> 10)), |bencher| {
                bencher.iter_custom(|count| crowd.time(&mut *writer, &message, count));
            });
            let (before, count) = (processor_time(), 2000);
            crowd.time(&mut *writer, &message, count);
            let used = (processor_time() - before).as_secs_f64() * 1e6 / count as f64;
            println!("  {name}, {} KiB: {used:.2} us of processor time a message, all threads", bytes >> 10);
        }
    }
    group.finish();
}

/// Messages of 8 chunks, by either way.
fn overflow(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("overflow to 2 readers");
    let message = vec![7; 8 << 20];
    group.throughput(Throughput::Bytes(message.len() as u64)).sample_size(10);
    for overflow in [Overflow::Ring, Overflow::ZeroMq] {
        if overflow == Overflow::ZeroMq && zeromq::Library::load().is_err() {
            continue;
        }
        let (mut writer, readers) = ring(2, Duration::from_micros(50), overflow);
        let crowd = Crowd::new(readers);
        group.bench_function(format!("{overflow:?}, 8 MiB"), |bencher| {
            bencher.iter_custom(|count| crowd.time(&mut *writer, &message, count));
        });
    }
    group.finish();
}

/// Measures the processor time of readers while the writer sends no messages.
fn idle(_: &mut Criterion) {
    for (name, ends) in ways() {
        let (mut writer, readers) = ends(2);
        let crowd = Crowd::new(readers);
        crowd.time(&mut *writer, b"warm", 10);
        crowd.expect.iter().for_each(|expect| expect.send(1).unwrap());
        thread::sleep(Duration::from_millis(50));
        let before = processor_time();
        thread::sleep(Duration::from_millis(500));
        let used = (processor_time() - before).as_secs_f64() * 1e3;
        println!("  {name}: {used:.2} ms of processor time in 500 ms of waiting by 2 readers");
        writer.send(b"end");
        crowd.expect.iter().for_each(|_| crowd.done.recv().unwrap());
    }
}

/// The functions of libzmq that a comparison needs, by the names of `zmq.h`.
mod zeromq {
    use super::*;

    macro_rules! functions {
        ($($name:ident: fn($($arg:ty),*) -> $out:ty;)*) => {
            #[derive(Clone, Copy)]
            pub(super) struct Library { $($name: unsafe extern "C" fn($($arg),*) -> $out,)* }

            impl Library {
                pub(super) fn load() -> Result<Self, libloading::Error> {
                    // SAFETY: libzmq's initialisers have no preconditions. It is never unloaded.
                    let library = Box::leak(Box::new(unsafe { libloading::Library::new("libzmq.so.5") }?));
                    // SAFETY: the types are those of zmq.h.
                    Ok(Self { $($name: *unsafe { library.get(concat!("zmq_", stringify!($name)).as_bytes()) }?,)* })
                }
            }
        };
    }

    functions! {
        ctx_new: fn() -> *mut c_void;
        socket: fn(*mut c_void, c_int) -> *mut c_void;
        setsockopt: fn(*mut c_void, c_int, *const c_void, usize) -> c_int;
        bind: fn(*mut c_void, *const std::ffi::c_char) -> c_int;
        connect: fn(*mut c_void, *const std::ffi::c_char) -> c_int;
        send: fn(*mut c_void, *const c_void, usize, c_int) -> c_int;
        recv: fn(*mut c_void, *mut c_void, usize, c_int) -> c_int;
    }

    const XPUB: c_int = 9;
    const SUB: c_int = 2;
    const SUBSCRIBE: c_int = 6;
    const XPUB_VERBOSE: c_int = 40;
    const XPUB_NODROP: c_int = 69;

    /// A socket that lives as long as the program, used by one thread.
    struct Socket(Library, *mut c_void, Vec<u8>);

    // SAFETY: sockets may move between threads with a full fence, which spawning a thread is.
    unsafe impl Send for Socket {}

    impl Socket {
        fn new(library: Library, context: *mut c_void, role: c_int) -> Self {
            // SAFETY: the context lives as long as the program.
            let raw = unsafe { (library.socket)(context, role) };
            assert!(!raw.is_null());
            Self(library, raw, vec![0; 1 << 20])
        }

        fn set(&self, option: c_int, value: &[u8]) {
            // SAFETY: the socket lives; the option is read from `value`.
            assert_eq!(unsafe { (self.0.setsockopt)(self.1, option, value.as_ptr().cast(), value.len()) }, 0);
        }

        fn receive_bytes(&mut self) -> usize {
            // SAFETY: the socket lives; the buffer has this many bytes.
            let bytes = unsafe { (self.0.recv)(self.1, self.2.as_mut_ptr().cast(), self.2.len(), 0) };
            usize::try_from(bytes).unwrap()
        }
    }

    impl Publish for Socket {
        fn send(&mut self, message: &[u8]) {
            // SAFETY: the socket lives; the message has this many bytes.
            let sent = unsafe { (self.0.send)(self.1, message.as_ptr().cast(), message.len(), 0) };
            assert_eq!(sent, message.len() as c_int);
        }
    }

    impl Subscribe for Socket {
        fn receive(&mut self) -> usize {
            self.receive_bytes()
        }
    }

    /// A publisher that never drops messages, and subscribers that have all joined.
    pub(super) fn ends(readers: usize) -> Ends {
        let library = Library::load().unwrap();
        // SAFETY: no preconditions.
        let context = unsafe { (library.ctx_new)() };
        let directory = Box::leak(Box::new(tempfile::tempdir().unwrap()));
        let endpoint = CString::new(format!("ipc://{}/bench.sock", directory.path().display())).unwrap();
        let mut publisher = Socket::new(library, context, XPUB);
        publisher.set(XPUB_VERBOSE, &1i32.to_ne_bytes());
        publisher.set(XPUB_NODROP, &1i32.to_ne_bytes());
        // SAFETY: the socket lives; the string ends in zero.
        assert_eq!(unsafe { (library.bind)(publisher.1, endpoint.as_ptr()) }, 0);
        let subscriber = |_| {
            let subscriber = Socket::new(library, context, SUB);
            subscriber.set(SUBSCRIBE, b"");
            // SAFETY: as above.
            assert_eq!(unsafe { (library.connect)(subscriber.1, endpoint.as_ptr()) }, 0);
            Box::new(subscriber) as Box<dyn Subscribe>
        };
        let subscribers = (0..readers).map(subscriber).collect();
        (0..readers).for_each(|_| assert_eq!(publisher.receive_bytes(), 1));
        (Box::new(publisher), subscribers)
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30).measurement_time(Duration::from_secs(2));
    targets = there_and_back, throughput, overflow, idle
}
criterion_main!(benches);
