//! `symmetra doctor`: checks the requirements of a group, and prints a remedy for each that is not met.

mod checks;

use serde::Serialize;

use harness::failure::Failure;
use harness::output;

/// Check what opening a group needs: one line and, where it fails, a remedy each.
///
/// Exit status: 0, or 1 when something that is needed fails.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Fail,
    /// Missing, and not needed.
    None,
}

impl Finding {
    fn new(check: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { check: check.into(), verdict, detail: detail.into(), remedy: None }
    }

    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, detail)
    }

    fn none(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::None, detail)
    }

    fn fail(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(check, Verdict::Fail, detail) }
    }

    fn print(&self) -> Result<(), Failure> {
        let verdict = match self.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Fail => "FAIL",
            Verdict::None => "-   ",
        };
        let remedy = self.remedy.as_ref().map(|remedy| format!(" -> {remedy}")).unwrap_or_default();
        output::line(format_args!("{verdict} {}: {}{remedy}", self.check, self.detail))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut failed = 0;
    checks::run(&mut |finding| {
        failed += usize::from(finding.verdict == Verdict::Fail);
        if args.json { output::json(&finding) } else { finding.print() }
    })?;
    match failed {
        0 => Ok(()),
        1 => Err(Failure::failed("1 check failed")),
        many => Err(Failure::failed(format!("{many} checks failed"))),
    }
}
