// Package fence is the rule that makes a lock safe: the protected resource refuses a write whose
// token is older than one it has already seen.
//
// A lock is advice. Its lease can end while the holder is paused, and the holder then writes while
// another holder is working. Only the resource can stop that write. A guard stores a [Mark] with
// the resource: which lock protects it, and the highest token seen. This package contains the rule
// as a pure function, [Mark.Admit], and the types that all guards share; the guards for particular
// stores are separate packages, such as fence/filefence and fence/httpfence, and package fencetest
// checks each of them.
//
// # Rules
//
//  1. A step is admitted if and only if the token of its grant is at least the highest seen. The
//     mark is raised to it in the same atomic step that writes the data, or before it.
//  2. [Enter] raises the mark without writing data. A holder enters before its first read:
//     otherwise an older holder that wakes before the new one has written is admitted, and an
//     update is lost.
//  3. [Write] may be repeated with the same token. [WriteOnce] is for work that must be done once
//     per grant: if the grant has already written here, it fails with [ErrAlready], which tells a
//     retry after a lost reply that the work is done. Entering does not count as writing. Once a
//     later grant has written, the retry fails with [ErrStale], and the data must show whether the
//     first attempt took effect.
//  4. One resource belongs to one lock name of one backend. The first admitted grant binds it. From
//     then on any other lock or backend is refused with [ErrForeign], however large its token:
//     tokens of different names and backends do not compare.
//  5. Token zero means "none" and is refused. So is a token above [lockstep.MaxToken], which would
//     lock everyone out forever.
//  6. A refusal changes nothing. An admission never lowers a mark, and only [Mark.Reset] removes
//     the binding; deleting the data or restarting does not.
//
// # Where grants come from
//
// [For] makes the [Source] of a lock's grants, once when a program starts. It refuses a backend
// that does not claim [lockstep.Capabilities.Fenced]: a guard that compares tokens without an order
// is worse than none, because people trust it.
//
// # What it costs, and what it cannot do
//
// The rule is two comparisons. The cost of a guard is that of its store: each guard's package says
// how many round trips or disk syncs it adds. [Memory] costs a mutex and about 200 bytes per
// resource.
//
// A guard orders writers that present their tokens. It does not authenticate them: anyone who may
// write may also invent a token. It does not protect against a writer that bypasses it. It covers
// one resource at a time: if two resources are written under one lock, readers can see the state
// between the two writes. And readers that do not enter can see the last write of an older holder
// until the new one has entered.
package fence
