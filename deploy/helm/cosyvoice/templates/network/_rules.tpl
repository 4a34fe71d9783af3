{{/* Egress to those who answer DNS. */}}
{{- define "cosyvoice.dns" -}}
- to: {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{/* Egress to a hub, whose addresses nobody knows beforehand. */}}
{{- define "cosyvoice.hub" -}}
- ports:
    - {port: 443, protocol: TCP}
{{- end -}}
