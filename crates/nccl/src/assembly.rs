//! The meeting of all ranks of a communicator that the real NCCL serves, at a split. Each part gets a verdict as an opening
//! does. symmetra serves a part only if all its ranks have opened the part, and if all ranks of the communicator have
//! exchanged that in the last round.

use std::sync::atomic::Ordering;
use std::time::Instant;

use symmetra::bootstrap::{Joined, Meeting, Tcp, UniqueId as Address};
use symmetra::{Device, Error};

use crate::comm::OwnComm;
use crate::config::CommConfig;
use crate::error::Result;
use crate::opening::{group_config, open_own};
use crate::place::RankAndSize;
use crate::served::Kin;
use crate::settings::FrontSettings;
use crate::verdict::{self, CommonSettings, RankFacts};
use crate::wish::{SplitRequest, parts};

/// The most bytes of a reason that ranks exchange.
const MOST_REASON_BYTES: usize = 512;

/// The part of this rank.
pub(crate) struct OwnPart {
    /// The numbers of its ranks in the communicator that is split, in the order of the part.
    members: Vec<usize>,
    pub(crate) place: RankAndSize,
    pub(crate) claims: Vec<RankFacts>,
}

impl OwnPart {
    /// The first text of a member that is not empty.
    fn first(&self, all: &[String]) -> Option<String> {
        self.members.iter().filter_map(|member| all.get(*member)).find(|text| !text.is_empty()).cloned()
    }
}

/// The library that serves the part of a rank.
pub(crate) enum Assembled {
    /// symmetra: the part is open on all its ranks.
    Own(OwnComm),
    /// The real NCCL, for a reason. The part is unknown if the ranks did not meet.
    Real(Option<OwnPart>, String),
    /// The rank has no part.
    NoPart,
    /// The ranks lost the meeting in the last round: the part may be open on other ranks.
    Unknown(Error),
}

/// The step of a rank before the last round.
enum PartAttempt {
    Open(OwnComm),
    /// The part did not open on this rank.
    Failed(String),
    /// symmetra cannot serve the part, as all its ranks know.
    Refused(String),
    NoPart,
}

/// A rank that takes part in a split.
pub(crate) struct PartAssembly<'a> {
    pub(crate) kin: &'a Kin,
    pub(crate) device: &'a Device,
    /// The id of the meeting.
    pub(crate) id: [u8; 128],
    pub(crate) wish: SplitRequest,
    pub(crate) config: &'a CommConfig,
    pub(crate) settings: &'a FrontSettings,
    pub(crate) deadline: Instant,
}

impl PartAssembly<'_> {
    /// Meets the other ranks, and opens the part if symmetra serves it. Collective over all ranks; blocks.
    ///
    /// # Errors
    /// A rank that is lost or late: then no part opens on any rank.
    pub(crate) fn decide(&self) -> Result<Assembled> {
        if self.kin.is_stale.load(Ordering::Relaxed) {
            return Ok(self.real(None, "the process that made the id has ended"));
        }
        let RankAndSize { rank, ranks } = self.kin.place;
        let mut met = match Meeting::join(&self.id, rank, ranks, &self.wish.bytes(), self.deadline) {
            Ok(met) => met,
            Err(error) => return self.unmet(error),
        };
        let mut all = parts(&SplitRequest::read_all(met.claims())?);
        // All ranks know all claims, and a split of parts across hosts needs no more exchanges.
        let served = all.values().any(|members| verdict::objection(&self.claims(members)).is_none());
        let members = self.wish.color().and_then(|color| all.remove(&color));
        let part = members.map(|members| {
            let own = members.iter().position(|member| *member == rank).unwrap_or_default();
            let place = RankAndSize { rank: own, ranks: members.len() };
            OwnPart { place, claims: self.claims(&members), members }
        });
        if !served {
            let reason = part.as_ref().and_then(|part| verdict::objection(&part.claims));
            return Ok(self.real(part, &reason.unwrap_or_default()));
        }
        match self.attempt(&mut met, part.as_ref()) {
            Ok(attempt) => self.confirm(&mut met, part, attempt),
            Err(error) => self.unmet(error),
        }
    }

    /// The claims of ranks, from the opening of the communicator.
    fn claims(&self, members: &[usize]) -> Vec<RankFacts> {
        members.iter().filter_map(|rank| self.kin.claims.get(*rank).cloned()).collect()
    }

    /// Sends a text to all ranks, and returns the texts of all.
    fn exchange(&self, met: &mut Joined, text: &str) -> symmetra::Result<Vec<String>> {
        let bytes = text.as_bytes();
        let all = met.exchange(bytes.get(..MOST_REASON_BYTES).unwrap_or(bytes), self.deadline)?;
        Ok(all.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect())
    }

    /// Opens the part if symmetra can serve it. The ranks of the other parts take part in the exchanges.
    fn attempt(&self, met: &mut Joined, part: Option<&OwnPart>) -> symmetra::Result<PartAttempt> {
        let claimed = part.and_then(|part| verdict::objection(&part.claims));
        let found = part.filter(|_| claimed.is_none()).and_then(|part| {
            verdict::unreachable(self.device, &part.claims).unwrap_or_else(|failure| Some(failure.text))
        });
        let all = self.exchange(met, &found.unwrap_or_default())?;
        let objection = claimed.or_else(|| part.and_then(|part| part.first(&all)));
        let leads = objection.is_none() && part.is_some_and(|part| part.place.rank == 0);
        // Without a port the text is empty, which no rank can read as an address.
        let listening = if leads { Address::listen().ok() } else { None };
        let all = self.exchange(met, &listening.as_ref().map(ToString::to_string).unwrap_or_default())?;
        Ok(match (part, objection) {
            (None, _) => PartAttempt::NoPart,
            (_, Some(reason)) => PartAttempt::Refused(reason),
            (Some(part), None) => match self.open(part, listening, &all) {
                Ok(own) => PartAttempt::Open(own),
                Err(failure) => PartAttempt::Failed(format!("symmetra did not open the part: {}", failure.text)),
            },
        })
    }

    fn open(&self, part: &OwnPart, listening: Option<Address>, all: &[String]) -> Result<OwnComm> {
        let address = match listening {
            Some(address) => address,
            None => part.first(all).unwrap_or_default().parse()?,
        };
        let RankAndSize { rank, ranks } = part.place;
        let bootstrap = Tcp::from_id(address, rank, ranks, self.deadline)?;
        let common = CommonSettings::of(&part.claims).at_most(self.config.most_blocks);
        open_own(bootstrap, self.device, group_config(self.settings, common, part.place, self.config))
    }

    /// The last round: each rank learns whether its part is open on all ranks of the part.
    fn confirm(&self, met: &mut Joined, part: Option<OwnPart>, attempt: PartAttempt) -> Result<Assembled> {
        let failed = if let PartAttempt::Failed(reason) = &attempt { reason } else { "" };
        let all = self.exchange(met, failed);
        // The service of the meeting sends an error to all ranks. If the service is lost, other ranks may have the texts of
        // the round.
        let lost = all.as_ref().is_err_and(|error| self.is_stale(error));
        match (attempt, all) {
            (PartAttempt::Open(own), Ok(all)) => match part.as_ref().and_then(|part| part.first(&all)) {
                None => Ok(Assembled::Own(own)),
                Some(reason) => {
                    own.communicator.abandon();
                    Ok(self.real(part, &reason))
                }
            },
            (PartAttempt::Open(own), Err(error)) => {
                own.communicator.abandon();
                if lost { Ok(Assembled::Unknown(error)) } else { Err(error.into()) }
            }
            (_, Err(error)) if !lost => Err(error.into()),
            (PartAttempt::Failed(reason) | PartAttempt::Refused(reason), _) => Ok(self.real(part, &reason)),
            (PartAttempt::NoPart, _) => Ok(Assembled::NoPart),
        }
    }

    /// The outcome without a part of symmetra.
    fn real(&self, part: Option<OwnPart>, reason: &str) -> Assembled {
        match self.wish.color() {
            Some(_) => Assembled::Real(part, reason.to_owned()),
            None => Assembled::NoPart,
        }
    }

    /// The outcome without a meeting. Without the process that made the id no rank can meet, and the real NCCL serves all
    /// parts. After every other error no rank has a part, because the meeting ends for all ranks.
    fn unmet(&self, error: Error) -> Result<Assembled> {
        match self.is_stale(&error) {
            true => Ok(self.real(None, &error.to_string())),
            false => Err(error.into()),
        }
    }

    /// Whether an error shows that the process that made the id has ended. Later splits then need no attempt.
    fn is_stale(&self, error: &Error) -> bool {
        let lost = matches!(error, Error::Bootstrap { .. } | Error::System { .. });
        let stale = lost && Meeting::has_ended(&self.id).unwrap_or(false);
        self.kin.is_stale.fetch_or(stale, Ordering::Relaxed);
        stale
    }
}
