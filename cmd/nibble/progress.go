package main

import (
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress is a bar on standard error. A nil progress shows nothing.
type progress struct {
	app  *app
	bars *mpb.Progress
	bar  *mpb.Bar
}

// progressDelay keeps what is quick from flickering.
const progressDelay = 500 * time.Millisecond

// startProgress shows how far a verb is, as told by counters, until stop. It
// shows nothing, and returns nil, unless standard error is a terminal; nor where
// the verb's own lines, on the same terminal, show it.
func (a *app) startProgress(what string, total int64, lines bool, counters ...decor.Decorator) *progress {
	if !isTerminal(a.stderr) || lines && isTerminal(a.stdout) {
		return nil
	}
	late := make(chan any)
	time.AfterFunc(progressDelay, func() { close(late) })
	p := &progress{app: a, bars: mpb.New(mpb.WithOutput(a.stderr), mpb.WithWidth(40), mpb.WithRenderDelay(late))}
	p.bar = p.bars.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name("nibble: "+what+" ")), mpb.AppendDecorators(counters...))
	a.talk = p.bars
	return p
}

// itemCounters count things done, and the time left.
func itemCounters() []decor.Decorator {
	return []decor.Decorator{decor.CountersNoUnit("%d of %d, "), decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left")}
}

// byteCounters count bytes done, their rate, and the time left.
func byteCounters() []decor.Decorator {
	return []decor.Decorator{
		decor.CountersKibiByte("% .1f of % .1f, "), decor.AverageSpeed(decor.SizeB1024(0), "% .0f, "),
		decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left"),
	}
}

// add says that n more are done.
func (p *progress) add(n int64) {
	if p != nil {
		p.bar.IncrInt64(n)
	}
}

// set says that n are done.
func (p *progress) set(n int64) {
	if p != nil {
		p.bar.SetCurrent(n)
	}
}

// stop removes the bar, also before all is done. It must be called before
// anything but app.say prints to the terminal.
func (p *progress) stop() {
	if p != nil {
		p.app.talk = nil
		p.bar.Abort(true)
		p.bars.Wait()
	}
}
