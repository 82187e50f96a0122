//! Values that refer to definitions, by name.

use annals_format::{
    CallPathId, Definitions, EventTypeId, FIRST_REMOTE, LocationId, ObjectId, Reference, RegionId,
    SourceId, StringId,
};

/// Returns the name of the definition that an integer refers to. `None` means that it is a plain value.
pub fn referred(definitions: &Definitions, reference: Reference, value: i128) -> Option<String> {
    let number = u32::try_from(value).ok()?;
    let d = definitions;
    match reference {
        Reference::None => None,
        // A number of this process's alone.
        Reference::Rank if number >= FIRST_REMOTE && !d.remote_members.is_empty() => {
            Some(format!("process {} of other worlds", number - FIRST_REMOTE))
        }
        Reference::Rank => None,
        Reference::String => Some(d.string(StringId::new(number)).to_owned()),
        Reference::Region => Some(d.region_name(RegionId::new(number))),
        Reference::Location => {
            let location = d.locations.get(&LocationId::new(number))?;
            Some(d.string(location.name).to_owned())
        }
        Reference::Source => {
            let source = d.sources.get(&SourceId::new(number))?;
            Some(d.string(source.name).to_owned())
        }
        Reference::EventType => Some(d.event_type_name(EventTypeId::new(number))),
        Reference::Object => {
            let object = d.objects.get(&ObjectId::new(number))?;
            Some(d.string(object.name).to_owned())
        }
        Reference::CallPath => Some(d.call_path_name(CallPathId::new(number))),
    }
}
