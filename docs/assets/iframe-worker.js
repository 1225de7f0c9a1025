// A page that was opened from disk may not start a worker. Its script runs in a hidden frame instead, so that the search
// works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = () => { throw new Error("scripts cannot be imported from disk") }
      const script = frame.contentDocument.createElement("script")
      script.src = new URL(url, document.baseURI)
      script.onload = () => {
        this.inside = inside
        this.waiting.forEach(data => this.postMessage(data))
      }
      frame.contentDocument.body.append(script)
      this.addEventListener("message", event => this.onmessage?.(event))
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
    terminate() {}
  }
}
