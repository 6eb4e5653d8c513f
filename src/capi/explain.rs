//! The choices of a group, for C++ callers.

use super::Report;
use super::mirror::{Mirrored, value};
use super::norm::format;
use super::report::guard;
use crate::choice::Range;
use crate::collective::Communicator;
use crate::environment::{Coordinator, Explanation, Served};
use crate::op::Algorithm;
use bridge::{Explained, QuantisedForm, Row, ServedCalls};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    /// Mirrors `symmetra::Range`.
    struct Row {
        up_to_bytes: u64,
        algorithm: u32,
        reason: String,
    }

    /// Mirrors `symmetra::Served`.
    struct ServedCalls {
        operation: String,
        reductions: Vec<u32>,
        dtypes: Vec<u32>,
        captured: bool,
        from_bytes: u64,
        up_to_bytes: u64,
    }

    /// Mirrors `symmetra::Explanation`.
    struct Explained {
        backend: u32,
        serves: Vec<ServedCalls>,
        refuses: Vec<String>,
        text: String,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");
        include!("symmetra/src/capi/norm.rs.h");

        type Communicator = crate::collective::Communicator;
        type Coordinator = crate::environment::Coordinator;
        type QuantisedForm = crate::capi::norm::bridge::QuantisedForm;
    }

    extern "Rust" {
        fn communicator_explain(communicator: &Communicator, dtype: u32, direct: bool) -> Result<Vec<Row>>;
        fn communicator_explain_norm(
            communicator: &Communicator,
            dtype: u32,
            hidden: usize,
            direct: bool,
        ) -> Result<Vec<Row>>;
        fn communicator_explain_quantised_norm(
            communicator: &Communicator,
            dtype: u32,
            row: [usize; 2],
            form: &QuantisedForm,
            flags: [bool; 2],
        ) -> Result<Vec<Row>>;
        fn communicator_explain_scattered_norm(
            communicator: &Communicator,
            dtype: u32,
            hidden: usize,
            flags: [bool; 3],
        ) -> Result<Vec<Row>>;
        fn coordinator_explain(coordinator: &Coordinator) -> Result<Vec<Explained>>;
    }
}

fn communicator_explain(communicator: &Communicator, number: u32, direct: bool) -> Result<Vec<Row>, Report> {
    guard(|| Ok(rows(&communicator.explain(value(number)?, direct))))
}

fn communicator_explain_norm(
    communicator: &Communicator,
    number: u32,
    hidden: usize,
    direct: bool,
) -> Result<Vec<Row>, Report> {
    guard(|| Ok(rows(&communicator.explain_norm(value(number)?, hidden, direct))))
}

fn communicator_explain_quantised_norm(
    communicator: &Communicator,
    number: u32,
    [hidden, width]: [usize; 2],
    form: &QuantisedForm,
    [direct, placed]: [bool; 2],
) -> Result<Vec<Row>, Report> {
    guard(|| Ok(rows(&communicator.explain_norm_of(value(number)?, hidden, width, format(form)?, direct, placed)?)))
}

fn communicator_explain_scattered_norm(
    communicator: &Communicator,
    number: u32,
    hidden: usize,
    [quantised, direct, gathers]: [bool; 3],
) -> Result<Vec<Row>, Report> {
    guard(|| Ok(rows(&communicator.explain_scattered_norm(value(number)?, hidden, quantised, direct, gathers))))
}

fn rows(ranges: &[Range<Algorithm>]) -> Vec<Row> {
    let row = |range: &Range<Algorithm>| Row {
        up_to_bytes: range.up_to_bytes,
        algorithm: range.choice.mirror(),
        reason: range.reason.to_owned(),
    };
    ranges.iter().map(row).collect()
}

fn coordinator_explain(coordinator: &Coordinator) -> Result<Vec<Explained>, Report> {
    let served = |served: &Served| ServedCalls {
        operation: served.operation.to_string(),
        reductions: served.reductions.iter().map(|reduction| reduction.mirror()).collect(),
        dtypes: served.dtypes.iter().map(|dtype| dtype.mirror()).collect(),
        captured: served.captured,
        from_bytes: served.from_bytes,
        up_to_bytes: served.up_to_bytes,
    };
    let explained = |explanation: Explanation| Explained {
        backend: explanation.backend.mirror(),
        serves: explanation.serves.iter().map(served).collect(),
        text: explanation.to_string(),
        refuses: explanation.refuses,
    };
    guard(|| Ok(coordinator.explain().into_iter().map(explained).collect()))
}
