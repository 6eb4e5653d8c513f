//! Tests of `src/types.rs`, whose module they are.

use super::*;

#[test]
fn numbers_and_names_read_back() {
    for dtype in Dtype::ALL {
        assert_eq!(Dtype::from_number(dtype as u32), Some(dtype));
        assert_eq!(dtype.name().parse::<Dtype>().unwrap(), dtype);
    }
    assert_eq!(Dtype::from_number(Dtype::ALL.len() as u32), None);
    for reduction in Reduction::ALL {
        assert_eq!(Reduction::from_number(reduction as u32), Some(reduction));
        assert_eq!(reduction.name().parse::<Reduction>().unwrap(), reduction);
    }
    for (number, transport) in Transport::ALL.into_iter().enumerate() {
        assert_eq!(transport as usize, number);
        assert_eq!(transport.name().parse::<Transport>().unwrap(), transport);
    }
    assert_eq!(Reduction::from_number(Reduction::ALL.len() as u32), None);
    let message = "mean".parse::<Reduction>().unwrap_err().to_string();
    assert!(message.contains("mean") && message.contains("avg"), "{message}");
}
