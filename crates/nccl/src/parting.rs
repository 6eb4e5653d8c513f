//! A split of a communicator that the real NCCL serves. Parts of one host become communicators on symmetra's kernels.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SendError, channel};
use std::time::{Duration, Instant};

use symmetra::bootstrap::Meeting;

use crate::abi::{self, Handle};
use crate::assembly::{Assembled, OwnPart, PartAssembly};
use crate::comm::{Comm, ServingLibrary};
use crate::config::CommConfig;
use crate::error::{CallFailure, Result};
use crate::log;
use crate::opening::deadline;
use crate::place::RankAndSize;
use crate::real;
use crate::served::{Kin, RealComm, SplitTurn};
use crate::settings::{FrontSettings, settings};
use crate::wish::{NO_PART, SplitRequest};

/// The pause between two looks for an abort.
const LOOK: Duration = Duration::from_millis(10);

/// A split that this rank takes part in.
pub(crate) struct Parting {
    parent: Arc<Comm>,
    turn: SplitTurn,
    /// The name of the split, which all ranks know.
    name: String,
    wish: SplitRequest,
    config: CommConfig,
    settings: &'static FrontSettings,
}

impl Parting {
    pub(crate) fn new(parent: &Arc<Comm>, real: &RealComm, wish: SplitRequest, config: CommConfig) -> Result<Self> {
        let settings = settings()?;
        let (turn, name) = (real.turn(), parent.next_split());
        Ok(Self { parent: parent.clone(), turn, name, wish, config, settings })
    }

    /// Splits. Collective over all ranks; blocks. Every rank calls the split of the real library once, because the ranks
    /// whose parts stay with the real library need all ranks there. An exception is a split that fails on all ranks.
    pub(crate) fn run(self) -> Result<Option<ServingLibrary>> {
        self.turn.wait();
        let real = self.parent.real().ok_or_else(ended)?;
        real.check()?;
        let deadline = deadline(self.settings);
        let outcome = self.decide(real, deadline)?;
        let color = if matches!(outcome, Assembled::Real(..)) { self.wish.color } else { NO_PART };
        let wish = SplitRequest { color, ..self.wish };
        let split = real.split(wish, &self.parent.config, &self.config.raw, deadline);
        match outcome {
            Assembled::Own(own) => {
                let place = RankAndSize { rank: own.communicator.rank(), ranks: own.communicator.world_size() };
                self.log(Some(place), "symmetra serves");
                // The other ranks of the part have it, too.
                split.map_or_else(|failure| log::warn(&failure.text), drop);
                Ok(Some(ServingLibrary::Own(own)))
            }
            Assembled::Real(part, reason) => {
                self.log(part.as_ref().map(|part| part.place), &format!("the real NCCL serves: {reason}"));
                let handle = split?.ok_or_else(|| CallFailure::system("the real NCCL made no part"))?;
                self.checked(real, handle, part).map(|part| Some(ServingLibrary::Real(part)))
            }
            Assembled::NoPart => split.map(|_| None),
            Assembled::Unknown(error) => Err(error.into()),
        }
    }

    /// Asks all ranks which library serves each part. An abort of the communicator ends the wait: a thread goes on for the
    /// other ranks.
    fn decide(&self, real: &RealComm, deadline: Instant) -> Result<Assembled> {
        let Some(kin) = &real.kin else {
            return Ok(match self.wish.color() {
                Some(_) => Assembled::Real(None, "its ranks have no id by which they meet".to_owned()),
                None => Assembled::NoPart,
            });
        };
        let id = Meeting::further(&kin.id, &self.name)?;
        let (wish, config, settings, parent) = (self.wish, self.config.clone(), self.settings, self.parent.clone());
        let (sender, receiver) = channel();
        let meet = move || {
            let real = parent.real().and_then(|real| Some((real, real.kin.as_ref()?)));
            let outcome = real.ok_or_else(ended).and_then(|(real, kin)| {
                let (device, config) = (&real.device, &config);
                PartAssembly { kin, device, id, wish, config, settings, deadline }.decide()
            });
            if let Err(SendError(Ok(Assembled::Own(own)))) = sender.send(outcome) {
                own.communicator.abandon();
            }
        };
        let started = std::thread::Builder::new().name("symmetra-split".to_owned()).spawn(meet);
        started.map_err(|error| CallFailure::system(format!("starting a thread: {error}")))?;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) => real.check_not_aborted()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CallFailure::new(abi::INTERNAL_ERROR, "a panic while the ranks of a split met"));
                }
            }
        }
    }

    /// A part of the real library, which must have the ranks that met.
    fn checked(&self, parent: &RealComm, handle: Handle, part: Option<OwnPart>) -> Result<RealComm> {
        let device = parent.device.clone();
        let Some((OwnPart { place, claims, .. }, kin)) = part.zip(parent.kin.as_ref()) else {
            return Ok(RealComm::new(handle, device, None));
        };
        let id = Meeting::further(&kin.id, &format!("{}, color {}", self.name, self.wish.color))?;
        let real = RealComm::new(handle, device, Some(Kin::new(id, place, claims)));
        let count = real::count(handle)?;
        if count == place.ranks {
            return Ok(real);
        }
        real.abort()?;
        let text = format!("the part of the real NCCL has {count} ranks: {} ranks have its color", place.ranks);
        Err(CallFailure::new(abi::REMOTE_ERROR, text))
    }

    fn log(&self, place: Option<RankAndSize>, text: &str) {
        let name = self.config.name();
        log::birth(&match place {
            Some(RankAndSize { rank, ranks }) => format!("{name} of {ranks}, rank {rank}, by a split: {text}"),
            None => format!("{name} by a split: {text}"),
        });
    }
}

fn ended() -> CallFailure {
    CallFailure::usage("the communicator ended during its split")
}
