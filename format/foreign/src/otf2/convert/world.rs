//! Converts ranks in an archive's communicators to ranks of the run.

use crate::otf2::enums::{GLOBAL_MEMBERS, PARADIGM_MPI, group_type};
use crate::otf2::{DefinitionKind, GlobalDefinition, GlobalDefinitions};
use rustc_hash::FxHashMap;

/// Members of a group by their rank in it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Members {
    /// Ranks of the run.
    Listed(Vec<u64>),
    /// Ranks in events are ranks of the run already.
    Global(Vec<u64>),
    /// Each process by itself.
    Itself,
}

impl Members {
    fn listed(&self) -> &[u64] {
        match self {
            Self::Listed(members) | Self::Global(members) => members,
            Self::Itself => &[],
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Communicator {
    Intra(Members),
    Inter(Members, Members),
}

/// Ranks of an archive.
#[derive(Default, Debug)]
pub(crate) struct World {
    /// Locations of the run's ranks.
    pub(crate) locations: Vec<u64>,
    communicators: FxHashMap<u64, Communicator>,
}

fn group_type(group: &GlobalDefinition) -> (u64, u64, u64) {
    match group.bits("group_type") {
        Some(group_type) => (
            group_type,
            group.bits("paradigm").unwrap_or(0),
            group.bits("group_flags").unwrap_or(0),
        ),
        // As it was before 1.2.
        None => match group.bits("group_type_pre12") {
            Some(4) => (group_type::COMM_GROUP, PARADIGM_MPI, 0),
            Some(5) => (group_type::COMM_SELF, PARADIGM_MPI, 0),
            Some(6) => (group_type::COMM_LOCATIONS, PARADIGM_MPI, 0),
            other => (other.unwrap_or(0), 0, 0),
        },
    }
}

impl World {
    pub(crate) fn of(definitions: &GlobalDefinitions) -> Self {
        let mut world = Self::default();
        for (_, group) in definitions.of_kind(DefinitionKind::Group) {
            let (group_type, paradigm, _) = group_type(group);
            if (group_type, paradigm) == (group_type::COMM_LOCATIONS, PARADIGM_MPI)
                && let Some(members) = group.get("number_of_members")
            {
                world.locations = members.numbers().to_vec();
                break;
            }
        }
        let members = |group: Option<u64>| {
            let group = definitions.find(DefinitionKind::Group, group?)?;
            let (group_type, paradigm, flags) = group_type(group);
            if paradigm != PARADIGM_MPI {
                return None;
            }
            let members = group.get("number_of_members")?.numbers();
            match group_type {
                group_type::COMM_SELF => Some(Members::Itself),
                group_type::COMM_GROUP if flags & GLOBAL_MEMBERS != 0 => {
                    Some(Members::Global(members.to_vec()))
                }
                group_type::COMM_GROUP => Some(Members::Listed(members.to_vec())),
                group_type::COMM_LOCATIONS => {
                    Some(Members::Listed((0..members.len() as u64).collect()))
                }
                _ => None,
            }
        };
        for (id, communicator) in definitions.of_kind(DefinitionKind::Comm) {
            let known = if communicator.record.name == "InterComm" {
                let groups = ["group_a", "group_b"].map(|name| members(communicator.bits(name)));
                let [Some(a), Some(b)] = groups else { continue };
                Communicator::Inter(a, b)
            } else {
                let Some(members) = members(communicator.bits("group")) else {
                    continue;
                };
                Communicator::Intra(members)
            };
            world.communicators.insert(id, known);
        }
        world
    }

    /// Returns whether each process has a separate communicator of this number.
    pub(crate) fn is_of_one(&self, communicator: u64) -> bool {
        self.communicators.get(&communicator) == Some(&Communicator::Intra(Members::Itself))
    }

    /// Returns the rank in the run for a rank in a communicator, from the perspective of the
    /// process with rank `own`.
    pub(crate) fn rank(&self, communicator: u64, rank: u64, own: Option<u64>) -> Option<u64> {
        let members = match self.communicators.get(&communicator)? {
            Communicator::Intra(members) => members,
            Communicator::Inter(a, b) if a.listed().contains(&own?) => b,
            Communicator::Inter(a, _) => a,
        };
        match members {
            Members::Listed(members) => members.get(usize::try_from(rank).ok()?).copied(),
            Members::Global(_) => Some(rank),
            Members::Itself => (rank == 0).then_some(own).flatten(),
        }
    }

    /// Returns how many processes a communicator has.
    pub(crate) fn size(&self, communicator: u64) -> Option<u64> {
        match self.communicators.get(&communicator)? {
            Communicator::Intra(Members::Itself) => Some(1),
            Communicator::Intra(members) => Some(members.listed().len() as u64),
            Communicator::Inter(..) => None,
        }
    }

    /// Returns the rank in a communicator of a process of this rank.
    pub(crate) fn place(&self, communicator: u64, own: Option<u64>) -> Option<u64> {
        match self.communicators.get(&communicator)? {
            Communicator::Intra(Members::Itself) => Some(0),
            Communicator::Intra(members) => {
                let own = own?;
                let place = members.listed().iter().position(|member| *member == own);
                place.map(|place| place as u64)
            }
            Communicator::Inter(..) => None,
        }
    }
}
