//! `symmetra doctor`: checks the requirements of a group, and prints a remedy for each that is not met.

mod checks;

use serde::Serialize;

use harness::failure::CommandFailure;
use harness::output;

/// Check the requirements of a group: one line for each check, and a remedy for each check that fails.
///
/// Exit status: 0, or 1 when a required check fails.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct CheckResult {
    check: String,
    verdict: CheckVerdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckVerdict {
    Ok,
    Fail,
    /// Missing, and not needed.
    None,
}

impl CheckResult {
    fn new(check: impl Into<String>, verdict: CheckVerdict, detail: impl Into<String>) -> Self {
        Self { check: check.into(), verdict, detail: detail.into(), remedy: None }
    }

    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(check, CheckVerdict::Ok, detail)
    }

    fn none(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(check, CheckVerdict::None, detail)
    }

    fn fail(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(check, CheckVerdict::Fail, detail) }
    }

    fn print(&self) -> Result<(), CommandFailure> {
        let verdict = match self.verdict {
            CheckVerdict::Ok => "ok  ",
            CheckVerdict::Fail => "FAIL",
            CheckVerdict::None => "-   ",
        };
        let remedy = self.remedy.as_ref().map(|remedy| format!(" -> {remedy}")).unwrap_or_default();
        output::line(format_args!("{verdict} {}: {}{remedy}", self.check, self.detail))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let mut failed = 0;
    checks::run(&mut |finding| {
        failed += usize::from(finding.verdict == CheckVerdict::Fail);
        if args.json { output::json(&finding) } else { finding.print() }
    })?;
    match failed {
        0 => Ok(()),
        1 => Err(CommandFailure::failed("1 check failed")),
        many => Err(CommandFailure::failed(format!("{many} checks failed"))),
    }
}
