//! Types for the description of records.

/// A kind of definition, which references name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum DefinitionKind {
    String,
    Attribute,
    Location,
    Region,
    Group,
    Metric,
    Comm,
    Parameter,
    RmaWin,
    SourceCodeLocation,
    CallingContext,
    InterruptGenerator,
    IoFile,
    IoHandle,
    LocationGroup,
    SystemTreeNode,
    MetricMember,
    Callsite,
    Callpath,
    CartDimension,
    CartTopology,
    IoParadigm,
}

impl DefinitionKind {
    /// Kinds that a location may number for itself: by the code of their mapping table.
    pub const MAPPED: [Self; 15] = [
        Self::String,
        Self::Attribute,
        Self::Location,
        Self::Region,
        Self::Group,
        Self::Metric,
        Self::Comm,
        Self::Parameter,
        Self::RmaWin,
        Self::SourceCodeLocation,
        Self::CallingContext,
        Self::InterruptGenerator,
        Self::IoFile,
        Self::IoHandle,
        Self::LocationGroup,
    ];

    /// Number of kinds.
    pub const COUNT: usize = Self::IoParadigm as usize + 1;

    /// Returns the number that means no definition of this kind.
    pub const fn undefined(self) -> u64 {
        match self {
            Self::Location => u64::MAX,
            Self::IoParadigm => 0xff,
            _ => u32::MAX as u64,
        }
    }

    /// Returns the kind of definition that attribute values of a type refer to; `None` if they are
    /// no references.
    pub const fn of_type(type_code: u8) -> Option<Self> {
        Some(match type_code {
            types::STRING => Self::String,
            12 => Self::Attribute,
            types::LOCATION => Self::Location,
            14 => Self::Region,
            15 => Self::Group,
            16 => Self::Metric,
            17 => Self::Comm,
            18 => Self::Parameter,
            19 => Self::RmaWin,
            20 => Self::SourceCodeLocation,
            21 => Self::CallingContext,
            22 => Self::InterruptGenerator,
            23 => Self::IoFile,
            24 => Self::IoHandle,
            25 => Self::LocationGroup,
            _ => return None,
        })
    }

    /// Returns the name for messages, which is also the kind of the object for such a definition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Attribute => "attribute",
            Self::Location => "location",
            Self::Region => "region",
            Self::Group => "group",
            Self::Metric => "metric",
            Self::Comm => "communicator",
            Self::Parameter => "parameter",
            Self::RmaWin => "window",
            Self::SourceCodeLocation => "source code location",
            Self::CallingContext => "calling context",
            Self::InterruptGenerator => "interrupt generator",
            Self::IoFile => "file",
            Self::IoHandle => "I/O handle",
            Self::LocationGroup => "location group",
            Self::SystemTreeNode => "system tree node",
            Self::MetricMember => "metric member",
            Self::Callsite => "call site",
            Self::Callpath => "call path",
            Self::CartDimension => "cartesian dimension",
            Self::CartTopology => "cartesian topology",
            Self::IoParadigm => "I/O paradigm",
        }
    }
}

/// Codes of `Type` that code asks for by name.
pub mod types {
    /// Unsigned, 8 bits.
    pub const UINT8: u8 = 1;
    /// Unsigned, 16 bits.
    pub const UINT16: u8 = 2;
    /// Unsigned, 32 bits.
    pub const UINT32: u8 = 3;
    /// Unsigned, 64 bits.
    pub const UINT64: u8 = 4;
    /// Signed, 8 bits.
    pub const INT8: u8 = 5;
    /// Signed, 16 bits.
    pub const INT16: u8 = 6;
    /// Signed, 32 bits.
    pub const INT32: u8 = 7;
    /// Signed, 64 bits.
    pub const INT64: u8 = 8;
    /// IEEE 754, 32 bits.
    pub const FLOAT: u8 = 9;
    /// IEEE 754, 64 bits.
    pub const DOUBLE: u8 = 10;
    /// A reference to a string.
    pub const STRING: u8 = 11;
    /// A reference to a location.
    pub const LOCATION: u8 = 13;
}

/// Names of an enumeration's values.
#[derive(Debug)]
pub struct Enumeration {
    /// Its name.
    pub name: &'static str,
    /// Whether values are sets of bits.
    pub is_set: bool,
    /// Values, ascending, with their names.
    pub values: &'static [(u64, &'static str)],
}

impl Enumeration {
    /// Returns the name of a value; `None` for one that is not known.
    pub fn name_of(&self, value: u64) -> Option<&'static str> {
        let mut values = self.values.iter();
        values
            .find(|(code, _)| *code == value)
            .map(|(_, name)| *name)
    }
}

/// The encoding of a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// One byte.
    U8,
    /// Eight bytes: a time.
    U64,
    /// Compressed, at most 32 bits.
    C32,
    /// Compressed, at most 64 bits.
    C64,
    /// Compressed, signed, 64 bits.
    Ci64,
    /// IEEE 754, 64 bits.
    F64,
    /// Text with a terminating NUL.
    Text,
    /// A value of an enumeration, one byte.
    Enum8(&'static Enumeration),
    /// A value of an enumeration, compressed.
    Enum32(&'static Enumeration),
    /// A reference, one byte.
    Ref8(DefinitionKind),
    /// A reference, compressed, at most 32 bits.
    Ref32(DefinitionKind),
    /// A reference, compressed, at most 64 bits.
    Ref64(DefinitionKind),
    /// The type of the value that follows.
    Type,
    /// A value of the type before.
    Value,
    /// Pairs of local and global ids.
    IdMap,
    /// A count of one byte, then these fields as many times.
    List8(&'static [Field]),
    /// A compressed count, then these fields as many times.
    List32(&'static [Field]),
}

/// A field of a record.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// How it is written.
    pub what: FieldType,
    /// The version that added this field and the following ones, if it is newer than the record: the field may be
    /// missing.
    pub since: Option<&'static str>,
}

/// How a record is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// Its id, and one compressed integer.
    Single,
    /// Its id, its length, its fields.
    Length,
}

/// The description of a record.
#[derive(Debug)]
pub struct Record {
    /// Its id on the wire.
    pub id: u8,
    /// Its name.
    pub name: &'static str,
    /// Its name in capitals, as tools print it.
    pub capitals: &'static str,
    /// The version that added it.
    pub since: &'static str,
    /// How it is framed.
    pub frame: Frame,
    /// Its fields in the order of the wire.
    pub fields: &'static [Field],
}

impl Record {
    /// Returns the record with this id.
    pub fn find(records: &'static [Self], id: u8) -> Option<&'static Self> {
        let index = records.binary_search_by_key(&id, |record| record.id);
        index.ok().map(|index| &records[index])
    }

    /// Returns the place of a field.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }
}
