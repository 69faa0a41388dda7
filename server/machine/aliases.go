package machine

import "github.com/lockstep-dev/lockstep/server/command"

// The types of package command, under the names that packages still use.
type (
	Acquire          = command.Acquire
	BirthID          = command.BirthID
	Cancel           = command.Cancel
	Change           = command.Change
	CheckHash        = command.CheckHash
	CheckpointLeases = command.CheckpointLeases
	ClaimID          = command.ClaimID
	ClaimStatus      = command.ClaimStatus
	CloseSession     = command.CloseSession
	Code             = command.Code
	Command          = command.Command
	DelayEnd         = command.DelayEnd
	EndDelay         = command.EndDelay
	EndRecovery      = command.EndRecovery
	EndWait          = command.EndWait
	Entry            = command.Entry
	Event            = command.Event
	EventKind        = command.EventKind
	Expire           = command.Expire
	Header           = command.Header
	Holder           = command.Holder
	Label            = command.Label
	Limits           = command.Limits
	Lock             = command.Lock
	Member           = command.Member
	Millis           = command.Millis
	Mode             = command.Mode
	OpenSession      = command.OpenSession
	Output           = command.Output
	Release          = command.Release
	RemoveMember     = command.RemoveMember
	RenewLeases      = command.RenewLeases
	Result           = command.Result
	Revoke           = command.Revoke
	Secret           = command.Secret
	SessionEnd       = command.SessionEnd
	SessionID        = command.SessionID
	SetBirth         = command.SetBirth
	SetLimits        = command.SetLimits
	SetMember        = command.SetMember
	SetTokenFloor    = command.SetTokenFloor
	Spec             = command.Spec
	State            = command.State
	Timer            = command.Timer
	TimerKind        = command.TimerKind
	Token            = command.Token
	WallMillis       = command.WallMillis
)

// The constants of package command.
const (
	BirthLevel     = command.BirthLevel
	Busy           = command.Busy
	Cancelled      = command.Cancelled
	DelayOver      = command.DelayOver
	DelayStarted   = command.DelayStarted
	EventCancelled = command.EventCancelled
	EventExpired   = command.EventExpired
	EventGranted   = command.EventGranted
	EventQueued    = command.EventQueued
	EventReleased  = command.EventReleased
	EventRevoked   = command.EventRevoked
	Exclusive      = command.Exclusive
	Exhausted      = command.Exhausted
	Expired        = command.Expired
	FeatureLevel   = command.FeatureLevel
	Granted        = command.Granted
	LeaseLevel     = command.LeaseLevel
	Lost           = command.Lost
	Malformed      = command.Malformed
	MaxCommands    = command.MaxCommands
	MaxNames       = command.MaxNames
	MaxToken       = command.MaxToken
	ModeMismatch   = command.ModeMismatch
	NotHeld        = command.NotHeld
	NotQueued      = command.NotQueued
	NotReady       = command.NotReady
	OK             = command.OK
	OutOfRange     = command.OutOfRange
	Permits        = command.Permits
	Queued         = command.Queued
	QuotaExceeded  = command.QuotaExceeded
	Released       = command.Released
	RequestReused  = command.RequestReused
	Revoked        = command.Revoked
	SecretLevel    = command.SecretLevel
	SessionEnded   = command.SessionEnded
	SessionExpired = command.SessionExpired
	SessionRevoked = command.SessionRevoked
	SessionStarted = command.SessionStarted
	SessionUnknown = command.SessionUnknown
	Shared         = command.Shared
	StaleRequest   = command.StaleRequest
	Void           = command.Void
	WaitEnded      = command.WaitEnded
	WaitOver       = command.WaitOver
	WaitStarted    = command.WaitStarted
)

// The functions and the error of package command.
var (
	AppendEntry    = command.AppendEntry
	CheckLevels    = command.CheckLevels
	DecodeEntry    = command.DecodeEntry
	DefaultLimits  = command.DefaultLimits
	EncodedSize    = command.EncodedSize
	LateBirth      = command.LateBirth
	LevelOf        = command.LevelOf
	ParseSessionID = command.ParseSessionID
	ErrNewer       = command.ErrNewer
)
