//! The explanations of coordinators and of GEMM plans equal `goldens/explained.txt`: a change of code that changes no choice
//! leaves the file as it is. `SYMMETRA_UPDATE=goldens cargo test --test suite explained` writes the file anew.

use std::fmt::Write as _;

use symmetra::environment::{Backend, EnvConfig, Environment, QuantisedAllReduce};
use symmetra::fused::{FusedOptions, Way};
use symmetra::matmul::{Numeric, Product};
use symmetra::{Codec, Determinism, TunedCodec, Tuning};

use crate::coordinator::config as groups_config;
use crate::support::world::meet;
use crate::support::{Rank, config, is_host, threads};

const WORLDS: [usize; 4] = [2, 3, 4, 8];

/// A setting by name.
type Setting = (&'static str, fn(&mut EnvConfig));

/// The settings of a group that change which backend serves a call, by name.
const SETTINGS: [Setting; 6] = [
    ("default", |_| ()),
    ("exact", |config| config.communicator.determinism = Determinism::Exact),
    ("own", |config| config.backend = Some(Backend::Own)),
    ("int8", |config| config.quantised = Some(QuantisedAllReduce::new(Codec::Int8))),
    ("fp8 64 KiB to 1 MiB", |config| {
        let quantised = QuantisedAllReduce::new(Codec::Fp8).min_bytes(Some(64 << 10)).max_bytes(Some(1 << 20));
        config.quantised = Some(quantised);
    }),
    ("int4 by a tuning of the host device", |config| {
        let codecs = WORLDS.map(|world_size| {
            let codec = TunedCodec::default().world_size(world_size).codec(Codec::Int4.to_string());
            codec.from_bytes((world_size != 3).then_some(1 << 16))
        });
        config.communicator.tuning = Some(Tuning::default().kind("host".to_owned()).codecs(codecs.to_vec()));
        config.quantised = Some(QuantisedAllReduce::new(Codec::Int4));
    }),
];

/// The calls that the backends with symmetra kernels serve and refuse. The reasons of other backends depend on the features
/// of the build.
fn coordinators(world: usize, found: &mut String) {
    for (name, set) in SETTINGS {
        let explained = meet(world, |bootstrap| {
            let mut config = groups_config(bootstrap, [world, 1, 1]);
            set(&mut config);
            let environment = Environment::init(config).unwrap();
            let explained = environment.tp().explain();
            environment.close().unwrap();
            explained
        });
        assert!(explained.windows(2).all(|pair| pair[0] == pair[1]), "{name}: ranks disagree");
        for explanation in &explained[0][..2] {
            writeln!(found, "coordinator of {world} ranks, {name}: {explanation}").unwrap();
        }
    }
}

/// The schedules of the three plans for some numbers of rows of a rank.
fn plans(world: usize, found: &mut String) {
    let explained = threads(world, &config().heap_bytes(64 << 20), |rank| {
        let rows = [1, 16, 256].map(|rows| rows * world);
        rows.iter().flat_map(|rows| Way::ALL.map(|way| plans_of(rank, *rows, way))).collect::<String>()
    });
    assert!(explained.windows(2).all(|pair| pair[0] == pair[1]), "ranks disagree");
    found.push_str(&explained[0]);
}

fn plans_of(Rank { communicator, .. }: &Rank, rows: usize, way: Way) -> String {
    let world = communicator.world_size();
    let options = FusedOptions::default().way(way);
    let product = Product::new(16, 8 * world, Numeric::F32);
    let gather = communicator.plan_all_gather_matmul(&[rows / world, 16], 0, &[product], options.clone()).unwrap();
    let scatter = communicator.plan_matmul_reduce_scatter(&[rows, 16], 0, product, options.clone()).unwrap();
    let cut = communicator.plan_matmul_reduce_scatter(&[rows, 16], 1, product, FusedOptions::default()).unwrap();
    let everywhere = communicator.plan_matmul_all_reduce(&[rows, 16], product, options).unwrap();
    [
        ("all-gather and GEMM", gather.explain()),
        ("GEMM and reduce-scatter", scatter.explain()),
        ("GEMM and reduce-scatter of columns", cut.explain()),
        ("GEMM and all-reduce", everywhere.explain()),
    ]
    .map(|(name, planned)| format!("{name}, {world} ranks, {rows} rows, {way}: {planned}\n"))
    .concat()
}

#[test]
fn explanations_are_those_of_the_golden_file() {
    if !is_host() {
        return;
    }
    let mut found = String::new();
    for world in WORLDS {
        coordinators(world, &mut found);
        plans(world, &mut found);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/goldens/explained.txt");
    if std::env::var_os("SYMMETRA_UPDATE").is_some_and(|what| what == "goldens") {
        std::fs::write(file, &found).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap();
    let differs = found.lines().zip(golden.lines()).find(|(found, golden)| found != golden);
    assert!(differs.is_none(), "found and golden: {differs:#?}");
    assert_eq!(found.lines().count(), golden.lines().count());
}
