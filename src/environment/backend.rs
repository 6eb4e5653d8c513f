//! Which backend serves a group, and why not the ones before it.

use std::fmt;

/// A backend and its verdict on a group. A call goes to the first that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// `own` or the name of an engine between hosts.
    pub name: &'static str,
    /// What it serves and how; none if it refuses.
    pub serves: Option<String>,
    /// Why, or why not.
    pub reason: String,
}

impl fmt::Display for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.serves {
            Some(serves) => write!(out, "{}: {serves}: {}", self.name, self.reason),
            None => write!(out, "{}: refuses: {}", self.name, self.reason),
        }
    }
}

/// The backends of a group in the order they are asked. A function of what all ranks agreed on, so
/// the same everywhere: how many of the group's ranks each of its hosts has, and the engine between.
pub(super) fn backends(local_sizes: &[usize], engine: Option<&'static str>) -> Vec<Backend> {
    let ranks: usize = local_sizes.iter().sum();
    let every_size = Some("every size and type".to_owned());
    let Some(engine) = engine else {
        let reason = format!("its {ranks} ranks are on one host");
        return vec![Backend { name: "own", serves: every_size, reason }];
    };
    let reason = format!("its {ranks} ranks are on {} hosts, {local_sizes:?} on each", local_sizes.len());
    let equal = local_sizes.iter().all(|size| *size == local_sizes[0]);
    let how = match (equal, local_sizes[0]) {
        (true, 1) => "every size and type, between the hosts".to_owned(),
        (true, _) => "every size and type, on two levels: reduce-scatter inside, all-reduce between, all-gather inside"
            .to_owned(),
        (false, _) => {
            "every size and type, on two levels: reduce inside, all-reduce between first ranks, broadcast inside"
                .to_owned()
        }
    };
    vec![
        Backend { name: "own", serves: None, reason: reason.clone() },
        Backend { name: engine, serves: Some(how), reason },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_backend_serves_and_the_others_say_why_not() {
        for (sizes, engine) in
            [(vec![4], None), (vec![2, 2], Some("gloo")), (vec![2, 1], Some("gloo")), (vec![1, 1], Some("gloo"))]
        {
            let backends = backends(&sizes, engine);
            let (last, refused) = backends.split_last().unwrap();
            assert!(last.serves.is_some() && refused.iter().all(|backend| backend.serves.is_none()), "{backends:?}");
        }
        let words: Vec<_> = backends(&[2, 1], Some("gloo")).iter().map(ToString::to_string).collect();
        assert_eq!(words[0], "own: refuses: its 3 ranks are on 2 hosts, [2, 1] on each");
        assert!(words[1].starts_with("gloo: every size and type, on two levels: reduce inside"), "{}", words[1]);
    }
}
