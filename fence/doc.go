// Package fence is the rule that makes a lock safe: the protected resource refuses
// a write that carries an older token than one it has seen.
//
// A lock is advice. Its lease can end while the holder is paused, and the holder
// then writes although another is at work. Only the resource can stop that write. A
// guard stores a [Mark] with the resource: which lock protects it, and the highest
// token seen. The package is the rule as a pure function, [Mark.Admit], and the
// words that all guards share; the guards for stores are packages of their own,
// such as fence/filefence and fence/httpfence, and package fencetest checks each
// of them.
//
// # Rules
//
//  1. A step of a grant is admitted iff its token is at least the highest seen. The mark
//     is raised to it in the same atomic step that writes the data, or before it.
//  2. [Enter] raises the mark without writing data. A holder enters before it first
//     reads: otherwise an older holder that wakes before the first write of the new
//     one is admitted, and an update is lost.
//  3. [Write] may be repeated with the same token. [WriteOnce] is for work that must be
//     done once in a grant: when the grant has written here before it is
//     [ErrAlready], which tells the retry after a lost reply that all is done. Entering
//     does not count as writing. Once a later grant has written, the retry is
//     [ErrStale], and the data must say whether the first attempt took effect.
//  4. One resource belongs to one lock name of one backend. The first grant that is
//     admitted binds it, and another lock or backend is [ErrForeign] from then on, however
//     large its token: tokens of different names and backends do not compare.
//  5. Token zero means "none" and is refused, and so is one above [lockstep.MaxToken],
//     which would close the door for ever.
//  6. A refusal changes nothing. An admission never lowers a mark, and nothing but
//     [Mark.Reset] takes the binding away: not deleting the data, not a restart.
//
// # Where grants come from
//
// [For] makes the [Source] of a lock's grants, once at the start of a program. It refuses
// a backend that does not claim [lockstep.Capabilities.Fenced]: a guard that compares
// tokens without order is worse than none, as people trust it.
//
// # What it costs, and what it cannot do
//
// The rule is two comparisons. What a guard costs is its store: the package of each guard says
// how many round trips or disk syncs it adds. [Memory] costs a mutex and about 200
// bytes for each resource.
//
// A guard orders writers that show their token. It does not authenticate them: whoever
// may write may also invent a token. It does not protect against a writer that goes
// past it. It covers one resource at a time: two resources written under one lock
// can be seen between the two writes. And readers that do not enter can see the last
// write of an older holder until the new one has entered.
package fence
