// Pages that were opened as files (file://) may not start workers, so that the search would be dead.
// There, a worker is replaced by a hidden frame that runs the same script. Served pages use real workers.
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.documentElement.append(this.frame);
      const inside = (this.inside = this.frame.contentWindow);
      const tell = (data) => this.answer(data);
      const whole = new URL(address, document.baseURI);
      const load = (script) => loadInto(inside, new URL(script, whole));
      inside.postMessage = (data) => setTimeout(tell, 0, data);
      // Real workers load these at once; the search awaits them, so that a promise will do.
      inside.importScripts = (...scripts) =>
        scripts.reduce((before, script) => before.then(() => load(script)), Promise.resolve());
      load(whole).then(() => this.ready());
    }

    ready() {
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach((data) => this.postMessage(data));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    terminate() {
      this.frame.remove();
    }
  }

  function loadInto(inside, address) {
    return new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      script.src = address;
      script.onload = () => done();
      script.onerror = () => failed(new Error(`can't load ${address}`));
      inside.document.head.append(script);
    });
  }

  window.Worker = FrameWorker;
})();
